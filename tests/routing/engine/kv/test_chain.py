"""Block hash chains: shared and separate blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.engine.kv import chain

KEY = b"k" * 32
IDS = st.lists(st.integers(0, 2**32 - 1), max_size=200)


def hashes(ids: list[int], block: int = 4, start: int = 7) -> list[int]:
    return chain.extend_chain(start, chain.pack_tokens(ids), block)


@given(IDS, st.integers(1, 40))
def test_each_full_block_has_one_hash(ids: list[int], block: int) -> None:
    assert len(hashes(ids, block)) == len(ids) // block


@given(IDS, IDS)
def test_longer_prompt_keeps_the_hashes_of_its_prefix(ids: list[int], more: list[int]) -> None:
    short = hashes(ids)
    assert hashes(ids + more)[: len(short)] == short


@given(IDS, IDS, st.integers(0, 50))
def test_continued_chain_equals_a_full_one(ids: list[int], more: list[int], blocks: int) -> None:
    whole = hashes(ids + more)
    blocks = min(blocks, len(whole))
    parent = whole[blocks - 1] if blocks else 7
    rest = chain.pack_tokens((ids + more)[blocks * 4 :])
    assert whole[:blocks] + chain.extend_chain(parent, rest, 4) == whole
    assert chain.extend_chain(parent, memoryview(rest), 4) == whole[blocks:]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=40), st.data())
def test_changed_token_changes_its_block_and_all_later_ones(
    ids: list[int], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(ids) // 4 * 4 - 1))
    other = list(ids)
    other[at] ^= 1
    first, second = hashes(ids), hashes(other)
    assert first[: at // 4] == second[: at // 4]
    assert not set(first[at // 4 :]) & set(second[at // 4 :])


def test_model_adapter_salt_and_key_start_separate_chains() -> None:
    roots = {
        chain.chain_root(KEY, "m"),
        chain.chain_root(KEY, "m", "a"),
        chain.chain_root(KEY, "m", "", "a"),
        chain.chain_root(KEY, "ma"),
        chain.chain_root(KEY, "", "m"),
        chain.chain_root(b"x" * 32, "m"),
    }
    assert len(roots) == 6
    assert chain.chain_root(KEY, "m", "a", "b") == chain.chain_root(KEY, "m", "a", "b")
    assert chain.chain_root(KEY, "\ud800") != chain.chain_root(KEY, "m")  # whatever JSON can carry


def test_invalid_token_ids_are_rejected() -> None:
    with pytest.raises(OverflowError):
        chain.pack_tokens([-1])
    with pytest.raises(OverflowError):
        chain.pack_tokens([2**32])
