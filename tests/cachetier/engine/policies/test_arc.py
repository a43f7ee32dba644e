"""ARC follows its paper, including the movement of the target."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable

import pytest

from cachetier.engine.policies import Arc, Lru
from tests.cachetier.engine.policies.shelf import Shelf, names


class Paper:
    """Figure 4 of the paper, written down as it stands, for pages of size one."""

    def __init__(self, c: int) -> None:
        self.c, self.p = c, 0.0
        self.t1, self.t2, self.b1, self.b2 = (OrderedDict[int, None]() for _ in range(4))

    def request(self, x: int) -> bool:
        if x in self.t1 or x in self.t2:  # case I
            self.t1.pop(x, None)
            self.t2.pop(x, None)
            self.t2[x] = None
            return True
        if x in self.b1:  # case II
            self.p = min(self.p + max(len(self.b2) / len(self.b1), 1), self.c)
            self.replace(x)
            del self.b1[x]
            self.t2[x] = None
            return False
        if x in self.b2:  # case III
            self.p = max(self.p - max(len(self.b1) / len(self.b2), 1), 0)
            self.replace(x)
            del self.b2[x]
            self.t2[x] = None
            return False
        one = len(self.t1) + len(self.b1)
        total = one + len(self.t2) + len(self.b2)
        if one == self.c:  # case IV
            if len(self.t1) < self.c:
                self.b1.popitem(last=False)
                self.replace(x)
            else:
                self.t1.popitem(last=False)
        elif total >= self.c:
            if total == 2 * self.c:
                self.b2.popitem(last=False)
            self.replace(x)
        self.t1[x] = None
        return False

    def replace(self, x: int) -> None:
        if self.t1 and (len(self.t1) > self.p or (x in self.b2 and len(self.t1) == self.p)):
            self.b1[self.t1.popitem(last=False)[0]] = None
        else:
            self.b2[self.t2.popitem(last=False)[0]] = None


def skewed(chance: random.Random, at: int) -> int:
    return int(chance.paretovariate(0.6)) % 3000


def skewed_and_scans(chance: random.Random, at: int) -> int:
    return 10_000 + at if at % 1000 > 500 else skewed(chance, at)


def changing(chance: random.Random, at: int) -> int:
    return at // 5000 * 1000 + int(chance.paretovariate(0.8)) % 1000


@pytest.mark.parametrize("load", [skewed, skewed_and_scans, changing])
def test_hit_rate_equals_that_of_the_paper(load: Callable[[random.Random, int], int]) -> None:
    chance = random.Random(7)
    paper, ours = Paper(100), Shelf(Arc(100), 100)
    keys = [load(chance, at) for at in range(30_000)]
    theirs = sum(paper.request(key) for key in keys)
    assert sum(ours.ask(b"%d" % key) for key in keys) == pytest.approx(theirs, rel=0.01)


def test_scan_does_not_evict_frequently_used_values() -> None:
    arc, lru = Shelf(Arc(100), 100), Shelf(Lru(100), 100)
    for shelf in (arc, lru):
        for turn in range(400):
            shelf.ask(b"hot %d" % (turn % 40))
        for number in range(1000):
            shelf.ask(b"scan %d" % number)
    hot = {b"hot %d" % number for number in range(40)}
    assert hot <= set(arc.costs)
    assert not hot & set(lru.costs)


def test_target_follows_ghost_hits() -> None:
    """At least by what came, more when the other list has more ghosts, never past the capacity."""
    arc = Arc(20)
    for key in names("a b c d"):
        arc.added(key, 2)
    arc.used(b"a")
    for key in names("b c d a"):  # three ghosts of what was seen once, one of what was more often
        arc.evicted(key)
    arc.added(b"b", 2)
    assert (arc._target, arc.ghosts()) == (2, 3)
    arc._target = 10
    arc.added(b"a", 2)  # two ghosts there and one here: it weighs double
    assert (arc._target, arc.ghosts()) == (6, 2)
    arc.evicted(b"a")
    arc.evicted(b"b")
    arc.added(b"c", 2)
    assert arc._target == 8
    arc.added(b"d", 2)  # two there, one here
    assert (arc._target, arc.ghosts()) == (12, 2)
    arc.resize(9)
    assert arc._target == 9


def test_tie_evicts_from_the_first_list_after_a_second_ghost_hit() -> None:
    arc = Arc(10)
    for key in names("a b"):
        arc.added(key, 2)
    arc.used(b"a")
    arc._target = 2
    assert arc.victim() == b"a"
    arc.evicted(b"a")
    arc.added(b"a", 2)
    arc._target = 2
    assert arc.victim() == b"b"


def test_lists_and_ghosts_stay_within_the_bounds_of_the_paper() -> None:
    chance = random.Random(11)
    arc = Arc(100)
    shelf = Shelf(arc, 100)
    for at in range(20_000):
        shelf.ask(b"%d" % changing(chance, at), chance.randrange(1, 9))
        first = arc._once.bytes + arc._once_gone.bytes
        assert first <= 100
        assert first + arc._often.bytes + arc._often_gone.bytes <= 200
