"""Block counts per worker and tier, for status pages.

Exact for small or device-only indexes, else extrapolated from a sample of shards (blocks are
sharded by hash), so that a call takes a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from routing.engine.kv.holders import BITS, GPU, L1, L2_OWN, L2_SHARED
from routing.engine.kv.index import SHARDS, Index

MAX_SAMPLED = 4096  # sampled holder entries, about 1 µs each
TIERS = ("gpu", "l1", "l2")
_TIER_MASKS = (1 << GPU, 1 << L1, 1 << L2_OWN | 1 << L2_SHARED)
_ALL: int = 2**BITS - 1


def count_blocks(index: Index, most: int = MAX_SAMPLED) -> dict[str, dict[str, int]]:
    """Return counts by worker id; workers without any event are omitted."""
    if not index.tiered:
        counted = {rank.worker: dict.fromkeys(TIERS, 0) for rank in index.ranks.values()}
        for rank in index.ranks.values():
            counted[rank.worker]["gpu"] += rank.blocks
        return counted
    masks: dict[int, int] = {}
    seen = shards = 0
    for shard in index.shards:
        if seen >= most:
            break
        for mask in shard.values():
            masks[mask] = masks.get(mask, 0) + 1
            seen += mask.bit_count()
        shards += 1
    return _by_worker(index, masks, SHARDS / shards)


def _by_worker(index: Index, masks: dict[int, int], scale: float) -> dict[str, dict[str, int]]:
    counted = {rank.worker: dict.fromkeys(TIERS, 0) for rank in index.ranks.values()}
    for mask, count in masks.items():
        for slot, bits in _bits_by_slot(mask):
            holder = index.slots[slot]
            if holder is None:
                continue
            counted_here = counted[holder.rank.worker]
            for tier, kinds in zip(TIERS, _TIER_MASKS, strict=True):
                if bits & kinds:
                    counted_here[tier] += round(count * scale)
    return counted


def _bits_by_slot(mask: int) -> Iterator[tuple[int, int]]:
    while mask:
        slot = ((mask & -mask).bit_length() - 1) // BITS
        bits = mask >> (slot * BITS) & _ALL
        yield slot, bits
        mask ^= bits << (slot * BITS)
