"""Tests of the block cache of simulated workers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cachetier.simulation.block_cache import BlockCache


def test_eviction_takes_the_longest_free_and_the_end_of_a_prompt_first() -> None:
    cache: BlockCache[int] = BlockCache(6)
    for chain in ([1, 2, 3], [4, 5]):
        assert cache.take(chain, 0, len(chain))
        assert all(cache.fill(block, 0) for block in chain)
        cache.free(chain, 0)
    assert cache.take([9], 0, 2)  # one blank, one from the end of the first prompt
    assert cache.match([1, 2, 3]) == 2
    assert cache.match([4, 5]) == 2
    assert cache.evicted == 1


def test_what_is_in_use_is_not_evicted() -> None:
    cache: BlockCache[int] = BlockCache(3)
    assert cache.take([1, 2], 0, 2)
    assert cache.fill(1, 0)
    assert not cache.take([5, 6], 0, 2)
    assert cache.match([1]) == 1


def test_running_blocks_are_never_evicted_and_the_tail_goes_first() -> None:
    cache: BlockCache[bytes] = BlockCache(6)
    blocks = [bytes([number]) for number in range(4)]
    assert cache.take([], 0, 4)
    assert all(cache.fill(block, b"") for block in blocks)
    assert not cache.take([], 0, 3)
    assert cache.match(blocks) == 4
    cache.free(blocks, 0)
    assert cache.usage == 0
    assert cache.take([], 0, 3)  # two blank, and one of the idle
    assert cache.match(blocks) == 3
    assert cache.take(blocks, 3, 0)
    assert cache.usage == 1
    cache.free([], 3)
    cache.free(blocks[:3], 0)
    assert cache.match(blocks) == 3


def test_a_block_computed_twice_is_held_once() -> None:
    cache: BlockCache[bytes] = BlockCache(4)
    assert cache.take([], 0, 2)
    assert cache.fill(b"x", b"")
    assert not cache.fill(b"x", b"")
    cache.free([b"x"], 1)
    assert cache.usage == 0
    assert cache.match([b"x"]) == 1


def test_a_reset_drops_idle_blocks_only() -> None:
    changes: list[tuple[bytes, bytes | None]] = []
    cache = BlockCache(4, changes)
    assert cache.take([], 0, 1)
    assert cache.fill(b"x", b"")
    assert not cache.reset()
    cache.free([b"x"], 0)
    assert cache.reset()
    assert (cache.match([b"x"]), cache.room, changes) == (0, 4, [(b"x", b"")])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=60))
def test_memory_is_never_exceeded(steps: list[tuple[int, int, bool]]) -> None:
    cache: BlockCache[int] = BlockCache(8)
    running: list[tuple[list[int], int]] = []
    for prompt, size, end in steps:
        chain = [10 * prompt + depth for depth in range(size)]
        hit = cache.match(chain)
        if cache.take(chain, hit, size - hit + 1):
            filled = chain[:hit] + [block for block in chain[hit:] if cache.fill(block, 0)]
            running.append((filled, size + 1 - len(filled)))
            assert cache.match(chain) == size
        if end and running:
            cache.free(*running.pop(0))
        held = {block for blocks, _ in running for block in blocks}
        assert cache.usage * 8 == len(held) + sum(blank for _, blank in running) <= 8
        assert held <= {block for block in range(60) if block in cache}
    for blocks, blank in running:
        cache.free(blocks, blank)
    assert cache.usage == 0
