"""Key placement, and moved keys when nodes are added or removed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from cachetier.client.rendezvous import Rendezvous

names = st.lists(st.text("abcdef0123456789.:-", min_size=1, max_size=12), unique=True, max_size=9)
keys = st.lists(st.binary(min_size=1, max_size=60), unique=True, min_size=1, max_size=60)
MANY = [b"emb1:namespace:0:%064x" % i for i in range(4000)]


@given(names, keys)
def test_list_order_does_not_matter(nodes: list[str], some: list[bytes]) -> None:
    one, other = Rendezvous(nodes), Rendezvous(reversed(nodes))
    assert [one.place(key, 2) for key in some] == [other.place(key, 2) for key in some]


@given(names.filter(lambda n: len(n) > 1), keys, st.data())
def test_removed_node_moves_only_its_keys_each_to_its_second_node(
    nodes: list[str], some: list[bytes], data: st.DataObject
) -> None:
    lost = data.draw(st.sampled_from(nodes))
    before, after = Rendezvous(nodes), Rendezvous(name for name in nodes if name != lost)
    for key in some:
        first, second = before.place(key, 2)
        assert after.place(key) == ((second,) if first == lost else (first,))


@given(names, keys, st.text("xyz", min_size=1, max_size=5))
def test_new_node_takes_keys_and_moves_no_other(
    nodes: list[str], some: list[bytes], new: str
) -> None:
    before, after = Rendezvous(nodes), Rendezvous([*nodes, new])
    for key in some:
        assert after.place(key) in (before.place(key), (new,))


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 9), st.integers(0, 1000))
def test_keys_spread_evenly_and_a_new_node_takes_one_nth(count: int, salt: int) -> None:
    nodes = [f"cache-{salt}-{i}:6400" for i in range(count)]
    before = [Rendezvous(nodes).place(key)[0] for key in MANY]
    after = [Rendezvous([*nodes, "new"]).place(key)[0] for key in MANY]
    fair = len(MANY) / count
    assert all(0.7 * fair < n < 1.3 * fair for n in Counter(before).values())
    moved = sum(was != now for was, now in zip(before, after, strict=True))
    assert 0.7 < moved / (len(MANY) / (count + 1)) < 1.3


def test_keys_are_divided_by_weight_and_a_changed_weight_moves_only_the_difference() -> None:
    sizes = {"a": 64.0, "b": 32.0, "c": 32.0}
    before, after = Rendezvous(sizes), Rendezvous(sizes | {"a": 96.0})
    owners = [before.place(key)[0] for key in MANY]
    shares = {name: count / len(MANY) for name, count in Counter(owners).items()}
    assert 0.46 < shares["a"] < 0.54
    assert 0.22 < shares["b"] < 0.28
    now = [after.place(key)[0] for key in MANY]
    moved = [new for old, new in zip(owners, now, strict=True) if old != new]
    assert set(moved) == {"a"}
    assert 0.07 < len(moved) / len(MANY) < 0.13, "96 of 160 instead of 64 of 128"


def test_equal_weights_place_like_none() -> None:
    names = ["a", "b", "c"]
    weighed = Rendezvous(dict.fromkeys(names, 64.0))
    assert [weighed.place(key, 2) for key in MANY[:200]] == [
        Rendezvous(names).place(key, 2) for key in MANY[:200]
    ]


def test_second_copies_are_on_other_nodes_and_spread() -> None:
    ring = Rendezvous(["a", "b", "c"])
    placed = [ring.place(key, 2) for key in MANY]
    assert all(len(set(pair)) == 2 for pair in placed)
    spread = Counter(pair[1] for pair in placed if pair[0] == "a")
    assert min(spread["b"], spread["c"]) > 0.4 * sum(spread.values())


def test_zero_and_one_node() -> None:
    assert Rendezvous(()).place(b"k", 2) == ()
    assert Rendezvous(["a"]).place(b"k", 2) == ("a",)


def test_placement_is_stable_between_versions() -> None:
    """A change here moves every key of every running tier: old and new workers would disagree."""
    ring = Rendezvous(["cache-0:6400", "cache-1:6400", "cache-2:6400"])
    assert "".join(ring.place(b"k%d" % i)[0][6] for i in range(24)) == PINNED


PINNED = "122201010001210120211110"
