"""The compact map behaves like a dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.engine.kv.compact_map import CompactMap

# Few low bits and repeated bytes: crowded buckets, and ids which are found across two entries.
IDS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 40),
    st.sampled_from([0, 2**64 - 1, 0x0101010101010101, 0x0100000000000000]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(IDS, IDS), max_size=40)),
        st.tuples(st.just("pop"), st.lists(IDS, max_size=20)),
        st.tuples(st.just("get"), IDS),
    ),
    max_size=60,
)


@given(STEPS)
def test_map_behaves_like_a_dict(steps: list) -> None:
    real: dict[int, int] = {}
    compact = CompactMap()
    for what, data in steps:
        if what == "put":
            expected = []
            for key, value in data:
                expected.append(real.get(key))
                real[key] = value
            found = compact.put_all([key for key, _ in data], [value for _, value in data])
            assert (found or [None] * len(data)) == expected
        elif what == "pop":
            assert compact.pop_all(data) == [real.pop(key, None) for key in data]
        else:
            assert compact.get(data) == real.get(data)
        assert len(compact) == len(real)
    found = [value for values in compact.values() for value in values]
    assert sorted(found) == sorted(real.values())
    assert all(compact.get(key) == value for key, value in real.items())


def test_map_stays_correct_while_it_grows_by_thousands() -> None:
    compact = CompactMap()
    for key in range(20_000):
        assert compact.put(key, key + 1) is None
    assert len(compact) == 20_000
    assert all(compact.get(key) == key + 1 for key in range(20_000))
    assert all(compact.pop(key) == key + 1 for key in range(0, 20_000, 2))
    assert compact.get(4) is None
    assert compact.get(5) == 6
    assert len(compact) == 10_000
