"""Memory store: capacity, accounting and LRU order."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cachetier.engine.memory.memory_store import ENTRY_BYTES, MemoryStore
from cachetier.engine.store import Condition, DeclineReason, EvictionReason, Hold

CAPACITY = 20 * (ENTRY_BYTES + 100)


def store(capacity: int = CAPACITY) -> tuple[MemoryStore, list[EvictionReason]]:
    evicted: list[EvictionReason] = []
    return MemoryStore(capacity, lambda reason, age: evicted.append(reason)), evicted


def put(
    one: MemoryStore,
    key: bytes,
    size: int = 90,
    now: float = 0.0,
    ttl_s: float | None = None,
    condition: Condition = Condition.ALWAYS,
) -> bool:
    return one.put(key, bytes(size), now=now, ttl_s=ttl_s, condition=condition) is None


def read(one: MemoryStore, key: bytes, now: float) -> bytes | None:
    value = one.acquire(key, now)
    if value is None:
        return None
    assert isinstance(value, Hold)
    content = value.tobytes()
    value.release()
    return content


class Model(RuleBasedStateMachine):
    """Against a dictionary that forgets nothing: what the store has must be what was put last."""

    keys = st.sampled_from([b"%d" % i for i in range(40)])

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.evictions = 0
        self.store = MemoryStore(CAPACITY, self._count)
        self.true: dict[bytes, tuple[bytes, float]] = {}

    def _count(self, reason: EvictionReason, age: float) -> None:
        assert age >= 0
        self.evictions += 1

    @rule(
        key=keys,
        size=st.integers(0, CAPACITY),
        ttl_s=st.none() | st.floats(0.01, 20),
        condition=st.sampled_from(Condition),
    )
    def put(self, key: bytes, size: int, ttl_s: float | None, condition: Condition) -> None:
        value = bytes([len(self.true) % 256]) * size
        there = self.store.peek(key, self.now) is not None
        declined = self.store.put(key, value, now=self.now, ttl_s=ttl_s, condition=condition)
        if declined is not None and declined.reason is DeclineReason.TOO_LARGE:
            assert len(key) + size + ENTRY_BYTES > CAPACITY
            return
        wanted = {Condition.ALWAYS: True, Condition.ABSENT: not there, Condition.PRESENT: there}
        assert (declined is None) is wanted[condition]
        if declined is None:
            self.true[key] = (value, self.now + (math.inf if ttl_s is None else ttl_s))
            assert read(self.store, key, self.now) == value

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        value = read(self.store, key, self.now)
        if value is not None:
            assert value == self.true[key][0]
            assert self.now < self.true[key][1]

    @rule(key=keys)
    def drop(self, key: bytes) -> None:
        there = self.store.peek(key, self.now) is not None
        assert self.store.drop(key, self.now) is there
        assert self.store.acquire(key, self.now) is None

    @rule(key=keys, ttl_s=st.none() | st.floats(0.01, 20))
    def expire(self, key: bytes, ttl_s: float | None) -> None:
        if self.store.expire(key, ttl_s, self.now):
            value, _ = self.true[key]
            self.true[key] = (value, self.now + (math.inf if ttl_s is None else ttl_s))

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.store.sweep(self.now)

    @invariant()
    def accounts_add_up(self) -> None:
        usage = self.store.usage()
        one, entries = self.store, self.store._entries
        assert usage.used_bytes <= CAPACITY
        assert usage.used_bytes == sum(
            len(key) + one.arena.cost(entry.length) + ENTRY_BYTES
            if entry.extents
            else len(key) + entry.length + ENTRY_BYTES
            for key, entry in entries.items()
        )
        assert usage.entries == len(entries)
        ends = {key for bucket in self.store._ends.values() for key in bucket}
        assert ends == {key for key, entry in entries.items() if entry.ends_at != math.inf}
        assert all(self.store._ends.values()), "an empty bucket was kept"


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.integers(0, CAPACITY - ENTRY_BYTES - 3), max_size=60))
def test_capacity_is_never_exceeded(sizes: list[int]) -> None:
    """The accounting is correct at each eviction, in the middle of a put."""
    seen: list[int] = []
    one = MemoryStore(CAPACITY, lambda reason, age: seen.append(one.usage().used_bytes))
    for index, size in enumerate(sizes):
        put(one, b"%03d" % index, size)
        assert one.usage().used_bytes <= CAPACITY
    assert all(used <= CAPACITY for used in seen)


def test_least_recently_used_is_evicted_first() -> None:
    one, evicted = store()
    for index in range(20):
        put(one, b"%02d" % index)
    read(one, b"00", 0)
    one.touch(b"01", 0)
    one.peek(b"02", 0)
    put(one, b"03", 90, condition=Condition.ABSENT)  # there already, and so a use
    put(one, b"new", 90 * 2 + ENTRY_BYTES)
    assert evicted == [EvictionReason.CAPACITY] * 2
    gone = [key for key in range(20) if one.peek(b"%02d" % key, 0) is None]
    assert gone == [2, 4]


def test_value_larger_than_the_capacity_is_rejected_without_evictions() -> None:
    one, evicted = store()
    put(one, b"a")
    assert not put(one, b"b", CAPACITY)
    assert read(one, b"a", 0) is not None
    assert evicted == []


def test_expiry_is_enforced_by_reads_and_sweeps() -> None:
    one, evicted = store()
    put(one, b"short", now=10.0, ttl_s=0.5)
    put(one, b"long", now=10.0, ttl_s=100)
    put(one, b"ever", now=10.0)
    assert one.ttl(b"short", 10.25) == 0.25
    assert one.ttl(b"ever", 10.0) == math.inf
    assert one.acquire(b"short", 10.5) is None
    assert one.ttl(b"short", 10.5) is None
    assert one.sweep(109.0) == 0
    assert one.sweep(111.0) == 1
    assert one.usage().entries == 1
    assert evicted == [EvictionReason.TTL] * 2


def test_sweep_visits_an_expiry_before_its_last_second() -> None:
    one, _ = store()
    assert one.sweep(50.0) == 0
    put(one, b"a", now=48.0, ttl_s=0.5)
    assert one.sweep(51.0) == 1


def test_churn_leaves_nothing() -> None:
    one, _ = store()
    for index in range(5000):
        put(one, b"same", now=float(index), ttl_s=50)
        put(one, b"%d" % index, now=float(index), ttl_s=5000)
    assert len(one._ends) <= one.usage().entries
    one.clear(6000.0)
    assert one.usage().used_bytes == 0
    assert one._ends == {}
