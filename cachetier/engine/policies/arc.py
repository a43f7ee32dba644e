"""ARC: lists of keys seen once and seen repeatedly, with an adaptive boundary.

Megiddo, Modha: "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure 4. T1 and T2
are in the store, B1 and B2 are ghosts of their evicted keys. A hit in B1 raises T1's target size by
the other list's share, a hit in B2 lowers it, at least by the key's cost. Sizes are bytes: a page
is a key's cost, c the capacity; L1 = T1 + B1 stays within c, all four within 2 c.

Differences: the store makes room before the key is known, so the target moves after the eviction;
if T1 equals its target, the tie favours T2 only if the last inserted key was a ghost of B2.
"""

from __future__ import annotations

from cachetier.engine.policies.base import CostQueue, GhostList


class Arc:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._target = 0.0  # T1's target in bytes: p in the paper
        self._once = CostQueue()  # T1
        self._often = CostQueue()  # T2
        self._once_gone = GhostList()  # B1
        self._often_gone = GhostList()  # B2
        self._came_from_often = False

    def __contains__(self, key: bytes) -> bool:
        return key in self._once.costs or key in self._often.costs

    def added(self, key: bytes, cost: int) -> None:
        was_there = self._take(key)
        self._came_from_often = False
        if was_there:
            self._often.push(key, cost)
        elif key in self._once_gone:
            self._grow_once(cost)
            self._once_gone.take(key)
            self._often.push(key, cost)
        elif key in self._often_gone:
            self._came_from_often = True
            self._grow_often(cost)
            self._often_gone.take(key)
            self._often.push(key, cost)
        else:
            self._once.push(key, cost)
        self._trim()

    def used(self, key: bytes) -> None:
        if key in self._often.costs:
            self._often.costs.move_to_end(key)
            return
        cost = self._once.take(key)
        if cost is not None:
            self._often.push(key, cost)

    def removed(self, key: bytes) -> None:
        self._take(key)

    def victim(self) -> bytes | None:
        first = self._once.first()
        length = self._once.bytes
        over = length > self._target or (self._came_from_often and length == self._target)
        if first is not None and (over or not self._often.costs):
            return first
        return self._often.first()

    def ranking(self) -> list[bytes]:
        return [*reversed(self._often.costs), *reversed(self._once.costs)]

    def evicted(self, key: bytes) -> None:
        cost = self._once.take(key)
        if cost is not None:
            self._once_gone.add(key, cost)
        else:
            cost = self._often.take(key)
            if cost is not None:
                self._often_gone.add(key, cost)
        self._trim()

    def resize(self, capacity: int) -> None:
        self._capacity = capacity
        self._target = min(self._target, capacity)
        self._trim()

    def ghosts(self) -> int:
        return len(self._once_gone) + len(self._often_gone)

    def _take(self, key: bytes) -> bool:
        return self._once.take(key) is not None or self._often.take(key) is not None

    def _grow_once(self, cost: int) -> None:
        share = self._often_gone.bytes / max(self._once_gone.bytes, 1)
        self._target = min(self._target + max(share, 1.0) * cost, self._capacity)

    def _grow_often(self, cost: int) -> None:
        share = self._once_gone.bytes / max(self._often_gone.bytes, 1)
        self._target = max(self._target - max(share, 1.0) * cost, 0.0)

    def _trim(self) -> None:
        self._once_gone.trim(max(self._capacity - self._once.bytes, 0))
        others = self._once.bytes + self._often.bytes + self._once_gone.bytes
        self._often_gone.trim(max(2 * self._capacity - others, 0))
