"""Value lookup for replies, including reads from disk.

Disk values are read and verified on a thread while only their client waits. On its second use a
value is promoted to memory if the store makes room; otherwise it is sent from its file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator

from cachetier.engine.net.session import ClientSession
from cachetier.engine.node import Node
from cachetier.engine.store import (
    LONG_BYTES,
    Condition,
    Declined,
    DiskValue,
    Hold,
    Store,
    WriteReservation,
)
from cachetier.wire import envelope

Value = Hold | DiskValue | None
# Generator of a reading handler: yields only to wait.
ValueLookup = Generator[None, None, Value]


def find_value(session: ClientSession, key: bytes) -> Value:
    """Return the value; a disk value must still be fetched (`fetched`) and is counted then."""
    value = session.node.store.acquire(key, time.monotonic())
    if value is None or isinstance(value, Hold):
        _count_lookup(session, key, found=value is not None)
    return value


def load_value(session: ClientSession, key: bytes) -> ValueLookup:
    """Return the value, ready to be sent."""
    value = find_value(session, key)
    if value is None or isinstance(value, Hold):
        return value
    return (yield from fetch_from_disk(session, key, value))


def fetch_from_disk(session: ClientSession, key: bytes, value: DiskValue) -> ValueLookup:
    """Return a disk value once verified, None if it is unreadable."""
    session.out.pause()
    reading = _DiskRead(session.node, key, value, session.out.resume)
    try:
        while not reading.has_ended:
            yield
    except GeneratorExit:  # client disconnected
        reading.abandon()
        raise
    lookup = reading.value
    _count_lookup(session, key, found=lookup is not None)
    return lookup


class _ShortReservation:
    """WriteReservation of a short value, kept as plain bytes instead of a whole page."""

    def __init__(self, store: Store, key: bytes, length: int) -> None:
        self._store = store
        self._key = key
        self._data = bytearray(length)
        self.views = (memoryview(self._data),)
        self.length = length

    def commit(self, now: float, ttl_s: float | None, condition: Condition) -> Declined | None:
        return self._store.put(self._key, self._data, now=now, ttl_s=ttl_s, condition=condition)

    def abandon(self) -> None:
        """Do nothing: no memory was reserved."""


class _DiskRead:
    """Read of one value from disk. The caller must `abandon` it to stop waiting."""

    def __init__(self, node: Node, key: bytes, value: DiskValue, wake: Callable[[], None]) -> None:
        self.value: Value = None
        self.has_ended = False
        self._is_wanted = True
        self._node = node
        self._key = key
        self._source = value
        self._wake = wake
        self._room = self._make_room() if value.deserves_memory else None
        value.fetch(self._ended, None if self._room is None else self._room.views)

    def _make_room(self) -> WriteReservation | None:
        now = time.monotonic()
        length = self._source.length
        if length < LONG_BYTES:
            return _ShortReservation(self._node.store, self._key, length)
        room = self._node.store.room(self._key, length, now, Condition.ALWAYS)
        return None if isinstance(room, Declined) else room

    def _ended(self, is_good: bool) -> None:
        self.has_ended = True
        value: Value = self._source
        if not is_good:
            value = None
        elif self._room is not None and self._is_in_memory():
            value = self._node.store.acquire(self._key, time.monotonic())
        if self._room is not None:
            self._room.abandon()
        if value is not self._source:
            self._source.release()
        if self._is_wanted:
            self.value = value
        elif value is not None:
            value.release()
        self._wake()

    def abandon(self) -> None:
        self._is_wanted = False
        value, self.value = self.value, None
        if value is not None:
            value.release()

    def _is_in_memory(self) -> bool:
        """Commit the reservation with the remaining lifetime; return whether it succeeded."""
        assert self._room is not None
        now = time.monotonic()
        left = self._node.store.ttl(self._key, now)
        if not self._source.is_current or left is None:  # dropped or replaced meanwhile
            return False
        ttl_s = None if left == math.inf else left
        room = self._room
        return self._source.bring_up(lambda: room.commit(now, ttl_s, Condition.ALWAYS))


def _count_lookup(session: ClientSession, key: bytes, *, found: bool) -> None:
    session.node.counters.operations["get", "hit" if found else "miss"] += 1
    if not key.startswith(envelope.PREFIX):  # blocks were counted by EXISTS
        session.node.looked_up(key, found)
