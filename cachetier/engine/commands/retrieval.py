"""Values which a reply needs and which may lie on disk: looked for, waited for, brought up.

A value on disk is read and checked in a thread while its client waits and nobody else does. On its
second use it is read into memory, if the store makes room for it, and is a value of memory from
then on; otherwise it is sent from its file.
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
# What a reading handler goes through: nothing is yielded but that it waits.
Looking = Generator[None, None, Value]


def look_now(session: ClientSession, key: bytes) -> Value:
    """As it lies: one on disk is still to be fetched (`fetched`), and counted then."""
    value = session.node.store.look(key, time.monotonic())
    if value is None or isinstance(value, Hold):
        _count(session, key, found=value is not None)
    return value


def look(session: ClientSession, key: bytes) -> Looking:
    """The value, ready to be sent."""
    value = look_now(session, key)
    if value is None or isinstance(value, Hold):
        return value
    return (yield from fetched(session, key, value))


def fetched(session: ClientSession, key: bytes, value: DiskValue) -> Looking:
    """A value on disk, once it may be sent; None if it cannot be read any more."""
    session.out.pause()
    reading = _Reading(session.node, key, value, session.out.resume)
    try:
        while not reading.has_ended:
            yield
    except GeneratorExit:  # the client left
        reading.abandon()
        raise
    found = reading.value
    _count(session, key, found=found is not None)
    return found


class _ShortRoom:
    """A store.Room for a value which is kept as plain bytes: a page would be too much for it."""

    def __init__(self, store: Store, key: bytes, length: int) -> None:
        self._store = store
        self._key = key
        self._data = bytearray(length)
        self.views = (memoryview(self._data),)
        self.length = length

    def commit(self, now: float, ttl_s: float | None, condition: Condition) -> Declined | None:
        return self._store.put(self._key, self._data, now=now, ttl_s=ttl_s, condition=condition)

    def abandon(self) -> None:
        """Nothing was taken."""


class _Reading:
    """One value on its way up. Whoever stops waiting for it must `abandon` it."""

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
            return _ShortRoom(self._node.store, self._key, length)
        room = self._node.store.room(self._key, length, now, Condition.ALWAYS)
        return None if isinstance(room, Declined) else room

    def _ended(self, is_good: bool) -> None:
        self.has_ended = True
        value: Value = self._source
        if not is_good:
            value = None
        elif self._room is not None and self._is_in_memory():
            value = self._node.store.look(self._key, time.monotonic())
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
        """Whether the room was made the key's value, with the time it has left."""
        assert self._room is not None
        now = time.monotonic()
        left = self._node.store.ttl(self._key, now)
        if not self._source.is_current or left is None:  # it was dropped or replaced meanwhile
            return False
        ttl_s = None if left == math.inf else left
        room = self._room
        return self._source.bring_up(lambda: room.commit(now, ttl_s, Condition.ALWAYS))


def _count(session: ClientSession, key: bytes, *, found: bool) -> None:
    session.node.counters.operations["get", "hit" if found else "miss"] += 1
    if not key.startswith(envelope.PREFIX):  # a block was looked up by EXISTS before
        session.node.looked_up(key, found)
