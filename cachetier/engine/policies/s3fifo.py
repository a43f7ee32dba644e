"""S3-FIFO: three FIFO queues, of which the small one evicts one-hit wonders early.

Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023, section
4, algorithm 1. New keys enter a small queue S of a tenth of the capacity. Keys used more than once
there move to the main queue M, others are evicted into a ghost queue G; a key returning from G
enters M directly. In M a used key is reinserted with one use less; uses are capped at three. As in
the paper's simulator, sizes are bytes, and G remembers as many bytes as M may hold.

Difference: the paper evicts during insertion, the store before a value arrives, so S may exceed its
tenth by the last value.
"""

from __future__ import annotations

from typing import Final

from cachetier.engine.policies.base import CostQueue, GhostList

_MAX_USES: Final = 3
_USES_TO_STAY: Final = 2  # "freq > 1" in algorithm 1
_SMALL_PART: Final = 10


class S3Fifo:
    def __init__(self, capacity: int) -> None:
        self._small = CostQueue()
        self._main = CostQueue()
        self._gone = GhostList()
        self._uses: dict[bytes, int] = {}
        self.resize(capacity)

    def __contains__(self, key: bytes) -> bool:
        return key in self._uses

    def added(self, key: bytes, cost: int) -> None:
        if key in self._uses:
            queue = self._small if key in self._small.costs else self._main
            queue.bytes += cost - queue.costs[key]
            queue.costs[key] = cost
            self.used(key)
            return
        self._uses[key] = 0
        queue = self._main if self._gone.take(key) else self._small
        queue.push(key, cost)

    def used(self, key: bytes) -> None:
        uses = self._uses.get(key)
        if uses is not None and uses < _MAX_USES:
            self._uses[key] = uses + 1

    def removed(self, key: bytes) -> None:
        if self._uses.pop(key, None) is not None and self._small.take(key) is None:
            self._main.take(key)

    def victim(self) -> bytes | None:
        if self._small.bytes >= self._small_limit or not self._main.costs:
            victim = self._victim_of_small()
            if victim is not None:
                return victim
        return self._victim_of_main()

    def ranking(self) -> list[bytes]:
        def by_uses(queue: CostQueue) -> list[bytes]:
            newest = list(reversed(queue.costs))  # among equal use counts, the newer first
            return sorted(newest, key=lambda key: -self._uses[key])

        return [*by_uses(self._main), *by_uses(self._small)]

    def evicted(self, key: bytes) -> None:
        if self._uses.pop(key, None) is None:
            return
        cost = self._small.take(key)
        if cost is None:
            self._main.take(key)
            return
        self._gone.add(key, cost)
        self._gone.trim(self._gone_limit)

    def resize(self, capacity: int) -> None:
        self._small_limit = capacity // _SMALL_PART
        self._gone_limit = capacity - self._small_limit
        self._gone.trim(self._gone_limit)

    def ghosts(self) -> int:
        return len(self._gone)

    def _victim_of_small(self) -> bytes | None:
        """Return the first key with too few uses; the ones before it move to the main queue."""
        while (key := self._small.first()) is not None:
            if self._uses[key] < _USES_TO_STAY:
                return key
            self._main.push(key, self._small.take(key) or 0)
            self._uses[key] = 0
        return None

    def _victim_of_main(self) -> bytes | None:
        """Return the first key without uses left; ends after three rounds, as each costs a use."""
        while (key := self._main.first()) is not None:
            if self._uses[key] == 0:
                return key
            self._uses[key] -= 1
            self._main.costs.move_to_end(key)
        return None
