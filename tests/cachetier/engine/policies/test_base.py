"""Properties of every eviction policy."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cachetier.engine.policies import POLICIES, base, make_policy
from cachetier.engine.policies.base import GhostList
from tests.cachetier.engine.policies.shelf import Shelf

KEYS = st.integers(0, 60).map(lambda number: b"%d" % number)
COSTS = st.integers(1, 60)
CAPACITY = 400

every = pytest.mark.parametrize("name", POLICIES)


class Life(RuleBasedStateMachine):
    """Against a dictionary: no key is lost or made up; ghosts stay within twice the capacity."""

    @initialize(name=st.sampled_from(sorted(POLICIES)))
    def begin(self, name: str) -> None:
        self.shelf = Shelf(make_policy(name, CAPACITY), CAPACITY)

    @rule(key=KEYS, cost=COSTS)
    def put(self, key: bytes, cost: int) -> None:
        self.shelf.put(key, cost)

    @rule(key=KEYS)
    def use(self, key: bytes) -> None:
        self.shelf.policy.used(key)

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        self.shelf.costs.pop(key, None)
        self.shelf.policy.removed(key)

    @rule(key=KEYS)
    def evict_any(self, key: bytes) -> None:
        """A quota lets go whom it chose itself."""
        if key in self.shelf.costs:
            self.shelf.let_go(key)
        else:
            self.shelf.policy.evicted(key)

    @rule(capacity=st.integers(60, 2 * CAPACITY))
    def resize(self, capacity: int) -> None:
        self.shelf.capacity = capacity
        self.shelf.policy.resize(capacity)
        while self.shelf.used > capacity:
            self.shelf.evict()

    @invariant()
    def keys_are_the_same(self) -> None:
        if not hasattr(self, "shelf"):
            return
        policy, costs = self.shelf.policy, self.shelf.costs
        assert sorted(policy.ranking()) == sorted(costs)
        assert all(key in policy for key in costs)
        assert policy.ghosts() <= 2 * self.shelf.capacity  # each cost a byte at least
        victim = policy.victim()
        assert (victim is None) == (not costs)
        assert victim is None or victim in costs

    def teardown(self) -> None:
        """Everybody can be let go, each once."""
        if hasattr(self, "shelf"):
            while self.shelf.costs:
                self.shelf.evict()
            assert self.shelf.policy.victim() is None


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@every
def test_frequently_used_values_outlive_a_stream(name: str) -> None:
    """With pauses between its uses shorter than the cache is long, as LRU needs it."""
    shelf = Shelf(make_policy(name, 100), 100)
    for number in range(5000):
        shelf.ask(b"stream %d" % number)
        if number % 20 == 0:
            shelf.ask(b"often")
    assert b"often" in shelf.costs
    assert b"often" not in shelf.evicted[200:]


@every
def test_bytes_count_instead_of_keys(name: str) -> None:
    """A key's cost can change while it is there, and the sum stays right."""
    policy = make_policy(name, 100)
    shelf = Shelf(policy, 100)
    for number in range(50):
        shelf.put(b"%d" % (number % 7), 1 + number % 13)
        assert shelf.used <= 100
    for key in list(shelf.costs):
        policy.removed(key)
    queues = [value for value in vars(policy).values() if isinstance(value, base.CostQueue)]
    assert queues
    assert all(queue.bytes == 0 for queue in queues)


@every
def test_ghosts_are_bounded_for_small_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_GHOSTS", 50)
    capacity = 1_000_000
    policy = make_policy(name, capacity)
    for number in range(1000):
        policy.added(b"%d" % number, 1)
        policy.evicted(b"%d" % number)
    assert policy.ghosts() <= 100


@every
def test_ghosts_shrink_with_the_capacity(name: str) -> None:
    shelf = Shelf(make_policy(name, 1000), 1000)
    chance = random.Random(3)
    for _ in range(5000):
        shelf.ask(b"%d" % chance.randrange(3000))
    shelf.capacity = 10
    shelf.policy.resize(10)
    assert shelf.policy.ghosts() <= 20
    while shelf.used > 10:
        shelf.evict()
    assert shelf.policy.ghosts() <= 20


def test_ghost_is_removed_once_with_its_bytes() -> None:
    ghosts = GhostList()
    ghosts.add(b"a", 5)
    ghosts.add(b"b", 7)
    ghosts.add(b"a", 6)
    assert (len(ghosts), ghosts.bytes) == (2, 13)
    assert ghosts.take(b"a")
    assert not ghosts.take(b"a")
    ghosts.trim(6)
    assert (len(ghosts), ghosts.bytes) == (0, 0)


def test_unknown_policy_is_rejected() -> None:
    with pytest.raises(KeyError):
        make_policy("mru", 1)
