"""Hints about blocks in storage (L2), which evicts without events.

Bounded per holder, oldest dropped first. A hint that an engine proved wrong is removed for all
workers.
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.engine.kv.holders import L2_OWN, L2_SHARED, Holder
from routing.engine.kv.index import KEY_MASK, SHARD_MASK, Index

LIMIT = 262_144  # per holder; about 50 bytes each


def add_hints(index: Index, holder: Holder, keys: Sequence[int]) -> int:
    """Add hints; return the number of older ones dropped for them."""
    hints = holder.hints
    hints.extend(keys)
    bits = holder.bits[L2_OWN] | holder.bits[L2_SHARED]
    forgotten = 0
    while len(hints) > LIMIT:
        key = hints.popleft()
        name = holder.blocks.get(key)
        if name is None:
            continue
        forgotten += 1
        if not index.unset(holder, name, bits):
            holder.blocks.pop(key)
    return forgotten


def remove_hints(index: Index, worker: str, names: Sequence[int]) -> int:
    """Remove hints for blocks the engine did not find: all of shared storage, and this worker's
    own. Return the number of blocks affected.
    """
    bits = index.shared_bits
    for rank in index.ranks.values():
        if rank.worker == worker:
            for holder in rank.groups.values():
                bits |= holder.bits[L2_OWN]
    found = 0
    for name in names:
        short = name & KEY_MASK
        shard = index.shards[short & SHARD_MASK]
        mask = shard.get(short, 0)
        if mask & bits:
            found += 1
            if left := mask & ~bits:
                shard[short] = index.mask(left)
            else:
                del shard[short]
    return found
