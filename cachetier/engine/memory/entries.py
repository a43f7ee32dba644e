"""Memory store entries, holds on them, and reservations for values being received."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cachetier.engine.memory.arena import Arena, Extent
from cachetier.engine.store import Condition, Declined, Hold


@dataclass(slots=True, eq=False)
class Entry:
    """Value in `data` or the arena. `gone`: removed, but kept for holders."""

    length: int
    cost: int
    data: bytes | None
    extents: Sequence[Extent] = ()
    born_at: float = 0.0
    ends_at: float = math.inf
    holds: int = 0
    gone: bool = False


class EntryOwner(Protocol):
    @property
    def arena(self) -> Arena: ...
    def let_go(self, entry: Entry) -> None: ...
    def give_up(self, entry: Entry) -> None: ...
    def settle(
        self, key: bytes, entry: Entry, now: float, ttl_s: float | None, condition: Condition
    ) -> Declined | None: ...


class HeldEntry(Hold):
    __slots__ = ("_entry", "_owner")

    def __init__(self, owner: EntryOwner, entry: Entry) -> None:
        self.length = entry.length
        if entry.data is not None:
            self.views = (memoryview(entry.data),)
            self.extents = None
        else:
            self.views = owner.arena.readable(entry.extents)
            self.extents = entry.extents
        self._owner: EntryOwner | None = owner
        self._entry = entry

    def release(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.let_go(self._entry)

    def tobytes(self) -> bytes:
        data = self._entry.data
        return data if data is not None else b"".join(self.views)


class IncomingEntry:
    """Entry being received; see store.WriteReservation."""

    __slots__ = ("_entry", "_key", "_owner", "length", "views")

    def __init__(self, owner: EntryOwner, key: bytes, entry: Entry) -> None:
        self._owner: EntryOwner | None = owner
        self._key = key
        self._entry = entry
        self.length = entry.length
        self.views = owner.arena.writable(entry.extents)

    def commit(self, now: float, ttl_s: float | None, condition: Condition) -> Declined | None:
        owner, self._owner = self._owner, None
        if owner is None:
            return None
        return owner.settle(self._key, self._entry, now, ttl_s, condition)

    def abandon(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.give_up(self._entry)
