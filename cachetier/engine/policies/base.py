"""Eviction policy interface, and the ghost list and queue used by policies.

A policy holds keys and costs in bytes, no values and no clock. The store requests a `victim`,
evicts it and reports it with `evicted`. A victim is always a present key; there is one as long as
there are keys.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol


class EvictionPolicy(Protocol):
    def __contains__(self, key: bytes) -> bool: ...

    def added(self, key: bytes, cost: int) -> None:
        """Record a stored key. For an existing key: a new cost, and a use."""
        ...

    def used(self, key: bytes) -> None:
        """Record a use; unknown keys are ignored."""
        ...

    def removed(self, key: bytes) -> None:
        """Record a removal other than eviction, which does not affect adaptation."""
        ...

    def victim(self) -> bytes | None:
        """Return the next key to evict, None if empty. May reorder keys, never removes one."""
        ...

    def ranking(self) -> list[bytes]:
        """Return all keys, the most valuable first, without side effects."""
        ...

    def evicted(self, key: bytes) -> None:
        """Record an eviction: of the victim, or of any other key (for example by a quota)."""
        ...

    def resize(self, capacity: int) -> None: ...

    def ghosts(self) -> int: ...


# Ghost limit for small values, at about 150 bytes each.
MAX_GHOSTS: Final = 262_144


class GhostList:
    """Evicted keys, oldest first, bounded by the bytes they had in the store.

    Stored as hashes to save memory; a collision (1 in 2**64 per pair) only misjudges one key.
    """

    __slots__ = ("_costs", "bytes")

    def __init__(self) -> None:
        self._costs: OrderedDict[int, int] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._costs)

    def __contains__(self, key: bytes) -> bool:
        return hash(key) in self._costs

    def add(self, key: bytes, cost: int) -> None:
        self.take(key)
        self._costs[hash(key)] = cost
        self.bytes += cost
        if len(self._costs) > MAX_GHOSTS:
            self._drop_oldest()

    def take(self, key: bytes) -> bool:
        """Remove the key; return whether it was present."""
        cost = self._costs.pop(hash(key), None)
        if cost is None:
            return False
        self.bytes -= cost
        return True

    def trim(self, limit: int) -> None:
        while self._costs and self.bytes > limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.bytes -= self._costs.popitem(last=False)[1]


class CostQueue:
    """FIFO of keys with costs and their sum."""

    __slots__ = ("bytes", "costs")

    def __init__(self) -> None:
        self.costs: OrderedDict[bytes, int] = OrderedDict()
        self.bytes = 0

    def push(self, key: bytes, cost: int) -> None:
        """Append a key that is in no queue."""
        self.costs[key] = cost
        self.bytes += cost

    def take(self, key: bytes) -> int | None:
        """Remove the key and return its cost, None if absent."""
        cost = self.costs.pop(key, None)
        if cost is not None:
            self.bytes -= cost
        return cost

    def first(self) -> bytes | None:
        return next(iter(self.costs), None)
