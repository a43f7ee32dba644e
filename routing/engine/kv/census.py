"""How many blocks each worker holds, tier by tier: for people.

Promises an answer within a few milliseconds whatever the size of the index: exact where it is
small or only devices were ever told of, else an estimate from some of its shards (a block's shard
is chosen by its hash, so a part of them is a fair sample). Changes nothing.
"""

from __future__ import annotations

from routing.engine.kv.holders import BITS, GPU, L1
from routing.engine.kv.index import SHARDS, Index

MOST = 4096  # blocks looked at; each costs about a microsecond
TIERS = ("gpu", "l1", "l2")


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
        seen += len(shard)
        shards += 1
    return _by_worker(index, masks, SHARDS / shards)


def _by_worker(index: Index, masks: dict[int, int], scale: float) -> dict[str, dict[str, int]]:
    counted = {rank.worker: dict.fromkeys(TIERS, 0) for rank in index.ranks.values()}
    for mask, count in masks.items():
        while mask:
            low = mask & -mask
            slot, kind = divmod(low.bit_length() - 1, BITS)
            holder = index.slots[slot]
            if holder is not None:
                tier = TIERS[0] if kind == GPU else TIERS[1] if kind == L1 else TIERS[2]
                counted[holder.rank.worker][tier] += round(count * scale)
            mask ^= low
    return counted
