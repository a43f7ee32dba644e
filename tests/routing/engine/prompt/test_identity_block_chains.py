"""Chained hashes are independent of cached state."""

from __future__ import annotations

import random

import pytest
import xxhash

from routing.engine.prompt.identity import GROUP_BLOCKS, BlockHasher

BLOCK = 16
GROUP_BYTES = GROUP_BLOCKS * BLOCK


def one_by_one(data: bytes, seed: int) -> list[int]:
    out = []
    for start in range(0, len(data) - BLOCK + 1, BLOCK):
        seed = xxhash.xxh3_64_intdigest(data[start : start + BLOCK], seed)
        out.append(seed)
    return out


@pytest.fixture
def data() -> bytes:
    return random.Random(5).randbytes(5 * GROUP_BYTES)


@pytest.mark.parametrize("groups", [0, 1, 3])
@pytest.mark.parametrize("more", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, GROUP_BYTES - 1])
def test_grouping_changes_no_hash(data: bytes, groups: int, more: int) -> None:
    cut = data[: groups * GROUP_BYTES + more]
    found = BlockHasher(BLOCK)
    assert found.of(cut, 7).tolist() == one_by_one(cut, 7)
    assert found.of(cut, 7).tolist() == one_by_one(cut, 7)
    assert found.of(cut, 8).tolist() == one_by_one(cut, 8)


def test_equal_text_after_another_prefix_differs(data: bytes) -> None:
    found = BlockHasher(BLOCK)
    found.of(data, 7)
    turned = data[GROUP_BYTES : 2 * GROUP_BYTES] + data[:GROUP_BYTES] + data[2 * GROUP_BYTES :]
    assert found.of(turned, 7).tolist() == one_by_one(turned, 7)


def test_returned_chain_may_be_modified(data: bytes) -> None:
    found = BlockHasher(BLOCK)
    found.of(data, 7)[0] = 0
    assert found.of(data, 7).tolist() == one_by_one(data, 7)


def test_cache_is_bounded_and_keeps_recent_chains(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routing.engine.prompt.identity.CACHED_GROUPS", 8)
    hashed = 0
    digest = xxhash.xxh3_64_intdigest
    used = data[:GROUP_BYTES]
    expected = one_by_one(used, 7)

    def counting(text: bytes | memoryview, seed: int) -> int:
        nonlocal hashed
        hashed += len(text) == BLOCK
        return digest(text, seed)

    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", counting)
    found = BlockHasher(BLOCK)
    for turn in range(50):
        found.of(used, 7)
        found.of(data[GROUP_BYTES:], turn)
        assert len(found._new) + len(found._old) <= 8
        assert found.of(used, 7).tolist() == expected
    # Four groups are new each turn. The one which comes back was dropped now and then, at most.
    assert hashed <= GROUP_BLOCKS * (50 * 4 + 1)
