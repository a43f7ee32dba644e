"""Tests of L1 and L2 without contents."""

from __future__ import annotations

import pytest

from cachetier.simulation.block_cache import NOTHING
from cachetier.simulation.tier_cache import TierCache


@pytest.mark.parametrize("policy", ["lru", "arc", "s3fifo"])
def test_a_full_tier_evicts_and_reports_it(policy: str) -> None:
    tier = TierCache(2, policy)
    journal: list[tuple[int, int | None]] = []
    for block in (1, 2, 3):
        tier.store(block, NOTHING, journal)
    assert len(tier) == 2
    assert tier.evicted == 1
    (gone,) = [block for block, before in journal if before is None]
    assert gone not in tier


def test_a_use_keeps_a_block_in_an_lru_tier() -> None:
    tier = TierCache(2)
    for block in (1, 2):
        tier.store(block, NOTHING, None)
    tier.touch([1])
    tier.store(3, NOTHING, None)
    assert 1 in tier and 2 not in tier


def use(tier: TierCache[bytes], *blocks: int) -> list[int]:
    """Use the blocks in turn; return those that were hits."""
    hits = []
    for number in blocks:
        block = bytes([number])
        if block in tier:
            tier.touch([block])
            hits.append(number)
        else:
            tier.store(block, b"", None)
    return hits


def test_arc_keeps_twice_used_blocks_through_a_scan() -> None:
    scan = tuple(range(10, 30))
    assert use(TierCache(4), 1, 2, 1, 2, *scan, 1, 2) == [1, 2]
    assert use(TierCache(4, "arc"), 1, 2, 1, 2, *scan, 1, 2) == [1, 2, 1, 2]


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_a_tier_without_room_holds_nothing(policy: str) -> None:
    assert use(TierCache(0, policy), 1, 1) == []
