"""Previous owners of keys after changes of the nodes in use."""

from __future__ import annotations

from cachetier.client.placement import REBALANCING_S, Placement
from cachetier.client.rendezvous import Rendezvous

KEYS = [b"k%d" % i for i in range(300)]
EVERY = {"a", "b", "c", "d"}


def place(*names: str) -> Placement:
    return Placement(Rendezvous(names))


def test_only_moved_keys_have_a_previous_owner() -> None:
    before = place("a", "b")
    now = before.replaced(Rendezvous(["a", "b", "c"]), now=0)
    for key in KEYS:
        moved = now.owner(key, 0) != before.owner(key, 0)
        expected = before.owner(key, 0) if moved else ""
        assert now.previous_owner(key, 1, EVERY) == expected
        assert now.previous_owner(key, 1, set()) == "", "it does not respond"


def test_previous_owners_are_forgotten_after_a_while() -> None:
    now = place("a", "b").replaced(Rendezvous(["a", "b", "c"]), now=100)
    assert not now.is_outdated(100)
    assert now.is_outdated(100 + REBALANCING_S)
    assert now.current(100 + REBALANCING_S) == Placement(now.ring)


def test_node_that_returns_finds_the_keys_of_its_absence() -> None:
    usual = place("a", "b", "c")
    absent = usual.replaced(Rendezvous(["a", "b"]), now=0)
    back = absent.replaced(usual.ring, now=60)
    theirs = [key for key in KEYS if usual.owner(key, 0) == "c"]
    assert theirs
    for key in theirs:
        assert back.owner(key, 0) == "c"
        assert back.previous_owner(key, 1, EVERY) == absent.owner(key, 0)
    assert back.previous_owner(next(k for k in KEYS if k not in theirs), 1, EVERY) == ""


def test_flapping_node_leaves_few_rings() -> None:
    now = place("a", "b", "c")
    for second in range(50):
        now = now.replaced(Rendezvous(["a", "b"]), second).replaced(
            Rendezvous(["a", "b", "c"]), second
        )
    assert [ring.names for _, ring in now.previous] == [("a", "b")]
    assert now.replaced(now.ring, 99) is now
    for number in range(50):
        now = now.replaced(Rendezvous(["a", f"n{number}"]), 99)
    assert len(now.previous) == 3


def test_second_copy_is_not_queried_again_as_a_previous_owner() -> None:
    now = place("a", "b", "c").replaced(Rendezvous(["a", "b", "c", "d"]), now=0)
    for key in KEYS:
        found = now.previous_owner(key, 2, EVERY)
        assert found not in now.ring.place(key, 2)
        assert bool(found) == ("d" in now.ring.place(key, 2))


def test_first_list_has_no_past() -> None:
    assert place().replaced(Rendezvous(["a"]), now=0).previous == ()
