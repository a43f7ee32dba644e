"""Quotas: a namespace over its quota evicts its own values only."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cachetier.engine.memory.arena import PAGE_BYTES
from cachetier.engine.memory.gates import Quotas
from cachetier.engine.memory.memory_store import ENTRY_BYTES, MemoryStore
from cachetier.engine.policies import POLICIES
from cachetier.engine.store import Condition, Declined, DeclineReason, EvictionReason
from cachetier.wire.envelope import block_key

ONE = 1000  # what a value costs in these tests
SMALL, FREE = "a" * 32, "b" * 32


def key(namespace: str, number: int) -> bytes:
    return block_key(namespace, 0, number.to_bytes(4, "big"))


class Shop:
    """A store in which everything costs ONE, with a quota of three for one namespace."""

    def __init__(self, capacity: int = 10 * ONE, quota: int = 3 * ONE, policy: str = "lru") -> None:
        self.evicted: list[EvictionReason] = []
        self.quotas = Quotas({SMALL: quota}, policy)
        self.store = MemoryStore(
            capacity, lambda reason, age: self.evicted.append(reason), gates=(self.quotas,)
        )

    def put(self, namespace: str, number: int, cost: int = ONE) -> Declined | None:
        name = key(namespace, number)
        return self.store.put(
            name,
            bytes(cost - len(name) - ENTRY_BYTES),
            now=0.0,
            ttl_s=None,
            condition=Condition.ALWAYS,
        )

    def has(self, namespace: str) -> list[int]:
        start = key(namespace, 0)[:-8]
        return [int(one[-8:], 16) for one in list(self.store.keys()) if one.startswith(start)]


@pytest.mark.parametrize("policy", POLICIES)
def test_namespace_over_quota_evicts_its_own_values_while_there_is_space(policy: str) -> None:
    shop = Shop(policy=policy)
    for number in range(5):
        shop.put(FREE, number)
    for number in range(20):
        assert shop.put(SMALL, number) is None
    assert len(shop.has(SMALL)) == 3
    assert len(shop.has(FREE)) == 5
    assert shop.evicted == [EvictionReason.QUOTA] * 17


def test_namespace_over_quota_does_not_evict_others() -> None:
    shop = Shop()
    for number in range(7):
        shop.put(FREE, number)
    for number in range(9):
        shop.put(SMALL, number)
    assert len(shop.has(FREE)) == 7
    assert shop.has(SMALL) == [6, 7, 8]


def test_used_values_of_a_namespace_stay() -> None:
    shop = Shop()
    for number in range(3):
        shop.put(SMALL, number)
    assert shop.store.touch(key(SMALL, 0), 0.0)
    shop.put(SMALL, 3)
    assert sorted(shop.has(SMALL)) == [0, 2, 3]


def test_namespace_below_quota_can_be_evicted_and_refilled() -> None:
    shop = Shop()
    for number in range(3):
        shop.put(SMALL, number)
    for number in range(9):
        shop.put(FREE, number)
    assert shop.has(SMALL) == [2]
    for number in (5, 6, 7):
        shop.put(SMALL, number)
    assert shop.has(SMALL) == [5, 6, 7]
    assert len(shop.has(FREE)) == 7
    assert EvictionReason.QUOTA not in shop.evicted


def test_value_above_the_quota_is_rejected_without_evictions() -> None:
    shop = Shop()
    shop.put(SMALL, 1)
    declined = shop.put(SMALL, 2, cost=3 * ONE + 1)
    assert declined is not None
    assert declined.reason is DeclineReason.QUOTA
    assert "3000" in declined.detail
    assert shop.has(SMALL) == [1]
    assert shop.put(SMALL, 2, cost=3 * ONE) is None
    assert shop.has(SMALL) == [2]


def test_concurrent_values_do_not_exceed_the_quota() -> None:
    """Each alone fits; they are known to be too many only when they are there."""
    size = 2 * PAGE_BYTES
    name_bytes = len(key(SMALL, 0))
    quotas = Quotas({SMALL: 2 * (size + name_bytes + ENTRY_BYTES)}, "lru")
    store = MemoryStore(100 * size, lambda reason, age: None, gates=(quotas,))
    rooms = [store.room(key(SMALL, at), size, 0.0, Condition.ALWAYS) for at in range(5)]
    for room in rooms:
        assert not isinstance(room, Declined)
        assert room.commit(0.0, None, Condition.ALWAYS) is None
    assert store.usage().entries == 2


def test_deletion_overwriting_and_expiry_release_the_quota() -> None:
    shop = Shop()
    for number in range(3):
        shop.put(SMALL, number)
    shop.put(SMALL, 0)
    assert shop.has(SMALL) == [1, 2, 0]
    shop.store.drop(key(SMALL, 1), 0.0)
    shop.store.expire(key(SMALL, 2), 1.0, 0.0)
    shop.store.sweep(5.0)
    shop.put(SMALL, 7)
    shop.put(SMALL, 8)
    assert sorted(shop.has(SMALL)) == [0, 7, 8]
    shop.store.clear(0.0, SMALL)
    for number in range(3):
        shop.put(SMALL, number)
    assert shop.has(SMALL) == [0, 1, 2]
    assert EvictionReason.QUOTA not in shop.evicted


class Life(RuleBasedStateMachine):
    """Whatever happens: never over the quota, and accounts which add up."""

    numbers = st.integers(0, 15)
    spaces = st.sampled_from([SMALL, FREE])

    def __init__(self) -> None:
        super().__init__()
        self.shop = Shop()
        self.now = 0.0

    @rule(namespace=spaces, number=numbers, cost=st.integers(500, 3500))
    def put(self, namespace: str, number: int, cost: int) -> None:
        self.shop.put(namespace, number, cost)

    @rule(namespace=spaces, number=numbers)
    def use(self, namespace: str, number: int) -> None:
        self.shop.store.touch(key(namespace, number), self.now)

    @rule(namespace=spaces, number=numbers)
    def drop(self, namespace: str, number: int) -> None:
        self.shop.store.drop(key(namespace, number), self.now)

    @rule(namespace=spaces, number=numbers, ttl_s=st.floats(0.1, 3))
    def expire(self, namespace: str, number: int, ttl_s: float) -> None:
        self.shop.store.expire(key(namespace, number), ttl_s, self.now)
        self.now += 1
        self.shop.store.sweep(self.now)

    @invariant()
    def within(self) -> None:
        facts = [self.shop.store.peek(key(SMALL, at), self.now) for at in self.shop.has(SMALL)]
        total = sum(one.cost for one in facts if one is not None)
        share = self.shop.quotas._shares[SMALL]
        assert total == share.used <= share.limit
        assert len(share.policy.ranking()) == len(self.shop.has(SMALL))


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
