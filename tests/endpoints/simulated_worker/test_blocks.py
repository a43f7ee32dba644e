"""Block model: hash chains, reference counts, eviction; ARC and LRU."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from endpoints.simulated_worker.blocks import Device, L1Arc, L1Lru, chain_hashes


def test_chain_covers_full_blocks_and_their_prefix() -> None:
    first = chain_hashes(range(100), 32)
    assert len(first) == 3
    assert chain_hashes(range(96), 32) == first
    changed = [*range(40), 7, *range(41, 100)]
    assert [a == b for a, b in zip(first, chain_hashes(changed, 32), strict=True)] == [
        True,
        False,
        False,
    ]
    assert set(first).isdisjoint(chain_hashes(range(100), 32, salt="x"))
    assert chain_hashes(range(31), 32) == []


def test_running_blocks_are_never_evicted_and_the_tail_goes_first() -> None:
    device = Device(6)
    blocks = [bytes([n]) for n in range(4)]
    one = device.take([], 4)
    assert one is not None
    for block in blocks:
        device.name(one, block)
    assert device.take([], 3) is None
    assert device.match(blocks) == 4
    device.release(one)
    assert device.usage == 0
    two = device.take([], 3)  # two free, and one of the idle
    assert two is not None
    assert device.match(blocks) == 3
    shared = device.take(blocks[:3], 0)
    assert shared is not None
    assert device.usage == 1
    device.release(two)
    device.release(shared)
    assert device.match(blocks) == 3


def test_duplicate_computations_share_only_the_hash() -> None:
    device = Device(4)
    one, two = device.take([], 1), device.take([], 1)
    assert one is not None
    assert two is not None
    device.name(one, b"x")
    device.name(two, b"x")
    assert (one.nameless, two.nameless) == (0, 1)
    device.release(one)
    device.release(two)
    assert device.usage == 0
    assert device.match([b"x"]) == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=60))
def test_device_memory_is_never_exceeded(steps: list[tuple[int, int, bool]]) -> None:
    device = Device(8)
    running = []
    for prompt, size, end in steps:
        hashes = chain_hashes([prompt] * size, 1)
        hit = device.match(hashes)
        holding = device.take(hashes[:hit], size - hit + 1)
        if holding is not None:
            for block in hashes[hit:]:
                device.name(holding, block)
            running.append(holding)
            assert device.match(hashes) == size
        if end and running:
            device.release(running.pop(0))
        held = {block for one in running for block in one.named}
        assert device.usage * 8 == len(held) + sum(one.nameless for one in running) <= 8
        assert all(device.match([block]) == 1 for block in held)
    for holding in running:
        device.release(holding)
    assert device.usage == 0


def fill(cache: L1Lru | L1Arc, *blocks: int) -> list[int]:
    """Use the blocks in turn as the engine does; those which were hits."""
    hits = []
    for number in blocks:
        block = bytes([number])
        if block in cache:
            cache.touch(block)
            hits.append(number)
        else:
            cache.put(block)
    return hits


def test_lru_evicts_the_least_recently_used() -> None:
    cache = L1Lru(3)
    assert fill(cache, 1, 2, 3, 1, 4) == [1]
    assert fill(cache, 2) == []
    assert len(cache) == 3
    assert fill(L1Lru(0), 1, 1) == []


def test_arc_keeps_twice_used_blocks_through_a_scan() -> None:
    scan = tuple(range(10, 30))
    assert fill(L1Lru(4), 1, 2, 1, 2, *scan, 1, 2) == [1, 2]
    assert fill(L1Arc(4), 1, 2, 1, 2, *scan, 1, 2) == [1, 2, 1, 2]
    assert fill(L1Arc(0), 1, 1) == []


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(0, 12), max_size=150))
def test_arc_stays_within_its_bounds(capacity: int, uses: list[int]) -> None:
    cache = L1Arc(capacity)
    for number in uses:
        fill(cache, number)
        assert bytes([number]) in cache
        assert len(cache) <= capacity
        names = len(cache) + len(cache._lost_once) + len(cache._lost_often)
        assert names <= 2 * capacity
        assert len(cache._once) + len(cache._lost_once) <= capacity
        assert 0 <= cache._target <= capacity
