"""S3-FIFO follows its paper, key by key."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from cachetier.engine.policies import S3Fifo
from tests.cachetier.engine.policies.shelf import Shelf, names


class Paper:
    """Algorithm 1 of the paper, written down as it stands, for keys of size one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.small: deque[bytes] = deque()  # the tail, who leaves next, is on the left
        self.main: deque[bytes] = deque()
        self.ghost: deque[bytes] = deque()
        self.freq: dict[bytes, int] = {}

    def read(self, x: bytes) -> bool:
        if x in self.freq:
            self.freq[x] = min(self.freq[x] + 1, 3)
            return True
        while len(self.small) + len(self.main) >= self.size:
            self.evict()
        if x in self.ghost:
            self.ghost.remove(x)
            self.main.append(x)
        else:
            self.small.append(x)
        self.freq[x] = 0
        return False

    def evict(self) -> None:
        if len(self.small) >= self.size // 10 and self.small:
            self.evict_small()
        else:
            self.evict_main()

    def evict_small(self) -> None:
        evicted = False
        while not evicted and self.small:
            t = self.small.popleft()
            if self.freq[t] > 1:
                self.main.append(t)
                self.freq[t] = 0
            else:
                del self.freq[t]
                self.ghost.append(t)
                if len(self.ghost) > self.size - self.size // 10:
                    self.ghost.popleft()
                evicted = True

    def evict_main(self) -> None:
        evicted = False
        while not evicted and self.main:
            t = self.main.popleft()
            if self.freq[t] > 0:
                self.main.append(t)
                self.freq[t] -= 1
            else:
                del self.freq[t]
                evicted = True


def compare(keys: list[int], size: int) -> None:
    paper, ours = Paper(size), Shelf(S3Fifo(size), size)
    for number in keys:
        key = b"%d" % number
        assert paper.read(key) == ours.ask(key)
    assert set(paper.freq) == set(ours.costs)
    assert len(paper.ghost) == ours.policy.ghosts()


@given(st.lists(st.integers(0, 40), max_size=300), st.integers(10, 30))
@settings(max_examples=100, deadline=None)
def test_evictions_equal_the_reference_algorithm(keys: list[int], size: int) -> None:
    compare(keys, size)


def test_evictions_equal_the_reference_algorithm_on_a_skewed_load() -> None:
    chance = random.Random(5)
    compare([int(chance.paretovariate(0.7)) % 2000 for _ in range(20_000)], 100)


def test_value_used_once_is_evicted() -> None:
    shelf = Shelf(S3Fifo(10), 10)
    for key in names("once twice") + names("once twice twice"):
        shelf.ask(key)
    for number in range(15):
        shelf.ask(b"%d" % number)
    assert b"once" not in shelf.costs
    assert b"twice" in shelf.costs


def test_early_reuse_promotes_to_the_main_queue() -> None:
    shelf = Shelf(S3Fifo(20), 20)
    for number in range(25):
        shelf.ask(b"%d" % number)
    shelf.ask(b"4")  # evicted a moment ago
    for number in range(100, 200):
        shelf.ask(b"%d" % number)
    assert b"4" in shelf.costs
    assert b"24" not in shelf.costs


def test_uses_are_counted_up_to_three() -> None:
    policy = S3Fifo(10)
    for key in names("a b"):
        policy.added(key, 1)
        policy.evicted(key)
        policy.added(key, 1)  # by its ghost into the main queue
    for _ in range(9):
        policy.used(b"a")
    for _ in range(3):
        policy.used(b"b")
    assert policy.victim() == b"a"  # both went round three times
