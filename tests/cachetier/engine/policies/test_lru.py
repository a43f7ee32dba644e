"""LRU order."""

from __future__ import annotations

from cachetier.engine.policies import Lru
from tests.cachetier.engine.policies.shelf import Shelf, names


def test_least_recently_used_is_evicted_first() -> None:
    shelf = Shelf(Lru(3), 3)
    for key in names("a b c a d b e"):
        shelf.ask(key)
    assert shelf.evicted == names("b c a")
