"""LRU eviction."""

from __future__ import annotations

from cachetier.engine.policies.base import CostQueue


class Lru:
    """Queue in which a use moves a key to the end."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queue = CostQueue()

    def __contains__(self, key: bytes) -> bool:
        return key in self._queue.costs

    def added(self, key: bytes, cost: int) -> None:
        self._queue.take(key)
        self._queue.push(key, cost)

    def used(self, key: bytes) -> None:
        if key in self._queue.costs:
            self._queue.costs.move_to_end(key)

    def removed(self, key: bytes) -> None:
        self._queue.take(key)

    def victim(self) -> bytes | None:
        return self._queue.first()

    def ranking(self) -> list[bytes]:
        return list(reversed(self._queue.costs))

    def evicted(self, key: bytes) -> None:
        self._queue.take(key)

    def resize(self, capacity: int) -> None:
        self._capacity = capacity

    def ghosts(self) -> int:
        return 0
