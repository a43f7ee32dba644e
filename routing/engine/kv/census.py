"""How many blocks each worker holds, tier by tier: for people.

Promises an answer within a few milliseconds whatever the size of the index: exact where it is
small or only devices were ever told of, else an estimate from some of its shards (a block's shard
is chosen by its hash, so a part of them is a fair sample). Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from routing.engine.kv.holders import BITS, GPU, L1, L2_OWN, L2_SHARED
from routing.engine.kv.index import SHARDS, Index

MOST = 4096  # holders of blocks looked at; each costs about a microsecond
TIERS = ("gpu", "l1", "l2")
_KINDS = (1 << GPU, 1 << L1, 1 << L2_OWN | 1 << L2_SHARED)
_ALL: int = 2**BITS - 1


def census(index: Index, most: int = MOST) -> dict[str, dict[str, int]]:
    """By worker id; a worker which holds nothing is in it only if it told of something once."""
    if not index.tiered:
        counted = {rank.worker: dict.fromkeys(TIERS, 0) for rank in index.ranks.values()}
        for rank in index.ranks.values():
            counted[rank.worker]["gpu"] += rank.blocks
        return counted
    masks: dict[int, int] = {}  # how many blocks have it
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
        for slot, bits in _holders(mask):
            holder = index.slots[slot]
            if holder is None:
                continue
            counted_here = counted[holder.rank.worker]
            for tier, kinds in zip(TIERS, _KINDS, strict=True):
                if bits & kinds:
                    counted_here[tier] += round(count * scale)
    return counted


def _holders(mask: int) -> Iterator[tuple[int, int]]:
    """Slots, and the bits each has in the mask."""
    while mask:
        slot = ((mask & -mask).bit_length() - 1) // BITS
        bits = mask >> (slot * BITS) & _ALL
        yield slot, bits
        mask ^= bits << (slot * BITS)
