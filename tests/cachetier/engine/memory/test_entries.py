"""Held bytes are not reused, and the accounting stays exact and below the capacity."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cachetier.engine.memory.arena import PAGE_BYTES, Arena
from cachetier.engine.memory.entries import Entry, HeldEntry, IncomingEntry
from cachetier.engine.memory.memory_store import ENTRY_BYTES, MemoryStore
from cachetier.engine.policies import POLICIES, make_policy
from cachetier.engine.store import Condition, Declined, DeclineReason, Hold, WriteReservation

CAPACITY = 24 * PAGE_BYTES
LIMIT = 40 * PAGE_BYTES
sizes = st.integers(1, 6 * PAGE_BYTES) | st.sampled_from(
    [1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 3 * PAGE_BYTES]
)


class Model(RuleBasedStateMachine):
    """Values tell their number on every byte, so that one page used twice is seen at once."""

    keys = st.sampled_from([b"key-%d" % i for i in range(12)])

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.capacity = CAPACITY
        self.store = MemoryStore(
            CAPACITY,
            lambda reason, age: None,
            arena=Arena(CAPACITY, limit_bytes=LIMIT),
            policy=make_policy(self.policy, CAPACITY),
            receiving_bytes=12 * PAGE_BYTES,
        )
        self.number = 0
        self.true: dict[bytes, bytes] = {}
        self.rooms: list[tuple[bytes, WriteReservation]] = []
        self.holds: list[tuple[bytes, Hold]] = []

    policy = "lru"

    def _next(self, length: int) -> bytes:
        self.number += 1
        return bytes([self.number % 255 + 1]) * length

    @rule(key=keys, length=sizes, condition=st.sampled_from([Condition.ALWAYS, Condition.ABSENT]))
    def ask_for_room(self, key: bytes, length: int, condition: Condition) -> None:
        there = self.store.peek(key, self.now) is not None
        room = self.store.room(key, length, self.now, condition)
        if isinstance(room, Declined):
            assert room.reason in (
                DeclineReason.BACKPRESSURE,
                DeclineReason.EXISTS,
                DeclineReason.TOO_LARGE,
            )
            assert (room.reason is DeclineReason.EXISTS) == (
                there and condition is Condition.ABSENT
            )
            return
        value = self._next(length)
        assert sum(map(len, room.views)) == length
        for view in room.views:
            view[:] = value[: len(view)]
        self.rooms.append((key, room))

    @precondition(lambda self: self.rooms)
    @rule(which=st.integers(0), ttl_s=st.none() | st.floats(0.1, 10), well=st.booleans())
    def end_room(self, which: int, ttl_s: float | None, well: bool) -> None:
        key, room = self.rooms.pop(which % len(self.rooms))
        if well:
            content = bytes(room.views[0][:1]) * room.length
            assert room.commit(self.now, ttl_s, Condition.ALWAYS) is None
            self.true[key] = content
        room.abandon()

    @rule(key=keys, length=sizes)
    def put(self, key: bytes, length: int) -> None:
        value = self._next(length)
        if self.store.put(key, value, now=self.now, ttl_s=None, condition=Condition.ALWAYS) is None:
            self.true[key] = value

    @rule(key=keys)
    def acquire(self, key: bytes) -> None:
        hold = self.store.acquire(key, self.now)
        if hold is not None:
            assert isinstance(hold, Hold)
            assert hold.tobytes() == self.true[key]
            self.holds.append((self.true[key], hold))

    @precondition(lambda self: self.holds)
    @rule(which=st.integers(0))
    def release(self, which: int) -> None:
        _, hold = self.holds.pop(which % len(self.holds))
        hold.release()
        hold.release()

    @rule(key=keys)
    def drop(self, key: bytes) -> None:
        self.store.drop(key, self.now)
        assert self.store.acquire(key, self.now) is None

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.store.sweep(self.now)

    @rule(pages=st.integers(4, 50))
    def resize(self, pages: int) -> None:
        declined = self.store.resize(pages * PAGE_BYTES, self.now)
        assert (declined is not None) == (pages * PAGE_BYTES > LIMIT)
        if declined is None:
            self.capacity = pages * PAGE_BYTES

    @rule()
    def clear(self) -> None:
        self.store.clear(self.now)
        assert self.store.usage().entries == 0

    # -- what always holds ---------------------------------------------------------------------
    def _entries(self) -> list[Entry]:
        found = {id(entry): entry for entry in self.store._entries.values()}
        for _, hold in self.holds:
            assert isinstance(hold, HeldEntry)
            found[id(hold._entry)] = hold._entry
        for _, room in self.rooms:
            assert isinstance(room, IncomingEntry)
            found[id(room._entry)] = room._entry
        return list(found.values())

    @invariant()
    def held_bytes_are_as_they_were(self) -> None:
        for value, hold in self.holds:
            assert b"".join(hold.views) == value

    @invariant()
    def accounts_are_exact(self) -> None:
        usage, entries = self.store.usage(), self._entries()
        assert usage.used_bytes == sum(entry.cost for entry in entries)
        assert usage.held_bytes == sum(entry.cost for entry in entries if entry.gone)
        assert usage.receiving_bytes == sum(room.length for _, room in self.rooms)
        held = {id(hold._entry): hold._entry for _, hold in self.holds}  # type: ignore[attr-defined]  # Held
        receiving = sum(room._entry.cost for _, room in self.rooms)  # type: ignore[attr-defined]  # Receiving
        assert self.store._pinned == receiving + sum(entry.cost for entry in held.values())
        assert usage.used_bytes <= max(self.capacity, self.store._pinned)
        for entry in entries:
            whole = self.store.arena.cost(entry.length) if entry.extents else entry.length
            assert whole + ENTRY_BYTES < entry.cost < whole + ENTRY_BYTES + 10

    @invariant()
    def no_page_is_two_values(self) -> None:
        taken: list[int] = []
        for entry in self._entries():
            for at, size in entry.extents:
                taken += range(at // PAGE_BYTES, (at + size - 1) // PAGE_BYTES + 1)
        assert len(taken) == len(set(taken))
        arena = self.store.arena
        free = arena._pages.free
        assert free * PAGE_BYTES + len(taken) * PAGE_BYTES == arena.capacity_bytes
        if self.store.usage().used_bytes <= self.capacity:
            assert arena.capacity_bytes <= self.capacity


@pytest.mark.parametrize("policy", POLICIES)
def test_held_bytes_are_accounted(policy: str) -> None:
    machine: Any = type(f"Model_{policy}", (Model,), {"policy": policy})
    case = machine.TestCase
    case.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
    case("runTest").runTest()


def small_store() -> MemoryStore:
    return MemoryStore(CAPACITY, lambda reason, age: None)


def stored(store: MemoryStore, key: bytes, pages: int) -> Declined | None:
    value = key[:1] * (pages * PAGE_BYTES)
    return store.put(key, value, now=0, ttl_s=None, condition=Condition.ALWAYS)


def held(store: MemoryStore, key: bytes) -> Hold:
    hold = store.acquire(key, 0)
    assert isinstance(hold, Hold)
    return hold


def test_value_being_sent_is_evicted_last() -> None:
    store = small_store()
    for key in (b"a", b"b", b"c"):
        assert stored(store, key, 5) is None
    hold = held(store, b"a")
    for key in (b"b", b"c"):
        assert store.touch(key, 0)
    assert stored(store, b"d", 10) is None
    assert store.peek(b"a", 0) is not None
    assert store.peek(b"b", 0) is None
    hold.release()


def test_write_is_declined_without_eviction_when_all_values_are_held() -> None:
    store = small_store()
    assert stored(store, b"a", 20) is None
    assert stored(store, b"b", 2) is None
    hold = held(store, b"a")
    declined = stored(store, b"c", 10)
    assert declined is not None and declined.reason is DeclineReason.BACKPRESSURE
    assert store.peek(b"b", 0) is not None
    hold.release()
    assert stored(store, b"c", 10) is None


def test_shrinking_under_a_hold_completes_on_release() -> None:
    store = small_store()
    assert stored(store, b"a", 20) is None
    hold = held(store, b"a")
    assert store.resize(4 * PAGE_BYTES, 0) is None
    assert hold.tobytes() == b"a" * (20 * PAGE_BYTES)
    assert store.usage().used_bytes > store.usage().capacity_bytes
    hold.release()
    assert store.usage().used_bytes == 0
    assert store.arena.capacity_bytes == 4 * PAGE_BYTES


class Refusing:
    """A tier below which takes nothing: a full or failing disk."""

    spare_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *words: False

    def offer(self, key: bytes, hold: Hold, ends_at: float) -> None:
        hold.release()


def test_shrinking_by_thousands_of_values_with_a_rejecting_disk() -> None:
    """Each value released at once reports possible further work while it is in progress."""
    lower: Any = Refusing()
    store = MemoryStore(100 * PAGE_BYTES, lambda reason, age: None, lower=lower)
    for number in range(3000):
        assert store.put(b"%d" % number, b"", now=0, ttl_s=None, condition=Condition.ALWAYS) is None
    assert store.usage().entries == 3000
    assert store.resize(PAGE_BYTES, 0) is None
    assert 0 < store.usage().used_bytes <= PAGE_BYTES


def test_values_received_during_a_shrink_stay_within_the_new_capacity() -> None:
    store = small_store()
    room = store.room(b"a", 10 * PAGE_BYTES, 0, Condition.ALWAYS)
    assert not isinstance(room, Declined)
    assert stored(store, b"b", 3) is None
    assert store.resize(4 * PAGE_BYTES, 0) is None
    assert room.commit(0, None, Condition.ALWAYS) is None
    assert store.usage().used_bytes <= 4 * PAGE_BYTES
    assert store.arena.capacity_bytes == 4 * PAGE_BYTES


def test_store_works_with_the_available_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One write is declined; after it the store evicts within what it has."""
    store = small_store()
    for key in (b"a", b"b"):
        assert stored(store, key, 5) is None

    def short(length: int) -> None:
        store.arena.resize(12 * PAGE_BYTES)

    monkeypatch.setattr(store.arena, "take", short)
    declined = stored(store, b"c", 5)
    assert declined is not None and declined.reason is DeclineReason.BACKPRESSURE
    monkeypatch.undo()
    assert store.usage().capacity_bytes == 12 * PAGE_BYTES
    assert stored(store, b"c", 5) is None
    assert store.usage().used_bytes <= 12 * PAGE_BYTES
