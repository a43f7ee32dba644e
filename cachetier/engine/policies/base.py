"""What a store asks an eviction policy, and the memory of what went that two of them keep.

A policy knows keys and what each costs in bytes. It holds no value, has no clock and never evicts
by itself: the store asks for a `victim`, lets it go and says so with `evicted`. A victim is always
a key which was added and has not left since; there is one as long as there are keys.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol


class EvictionPolicy(Protocol):
    def __len__(self) -> int:
        """How many keys there are, ghosts not counted."""
        ...

    def __contains__(self, key: bytes) -> bool: ...

    def added(self, key: bytes, cost: int) -> None:
        """The key is in the store now. For a key which was there: its new cost, and a use."""
        ...

    def used(self, key: bytes) -> None:
        """Somebody wanted it; a key which is not there is passed over."""
        ...

    def removed(self, key: bytes) -> None:
        """It left for a reason of its own (deleted, past its end): nothing is learnt from it."""
        ...

    def victim(self) -> bytes | None:
        """Who should go next; None if nobody is there. Asking changes who, never who is there."""
        ...

    def ranking(self) -> list[bytes]:
        """Every key, the one most worth keeping first. Asking is no use, and changes nothing."""
        ...

    def evicted(self, key: bytes) -> None:
        """It was let go to make room: the victim, or any other key (of a quota, say)."""
        ...

    def resize(self, capacity: int) -> None:
        """The store's capacity in bytes from now on."""
        ...

    def ghosts(self) -> int:
        """How many keys are remembered which are not there any more."""
        ...


# However small the values are: at about 150 bytes each this is all that ghosts may take.
MAX_GHOSTS: Final = 262_144


class Ghosts:
    """Keys that went, oldest first, for as many bytes as they cost while they were there.

    Kept as hashes of keys, so that a long key is not kept for its ghost: a collision, which is one
    in 2**64 a pair, makes a policy a little wrong about one key, and nothing else.
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
        """Whether it was there; it is not afterwards."""
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


class Queue:
    """Keys in order with what they cost, the next to leave first, and the sum of the costs."""

    __slots__ = ("bytes", "costs")

    def __init__(self) -> None:
        self.costs: OrderedDict[bytes, int] = OrderedDict()
        self.bytes = 0

    def push(self, key: bytes, cost: int) -> None:
        """At the far end; the key is in no queue before."""
        self.costs[key] = cost
        self.bytes += cost

    def take(self, key: bytes) -> int | None:
        """What it cost, None if it is not here; it is not afterwards."""
        cost = self.costs.pop(key, None)
        if cost is not None:
            self.bytes -= cost
        return cost

    def first(self) -> bytes | None:
        return next(iter(self.costs), None)
