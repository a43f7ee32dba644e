"""What storage (L2) is said to hold: hints, for it evicts without a word.

Promises that hints are bounded (of one holder the oldest are forgotten first, else the index would
come to hold all that ever was), and that what an engine did not find where a hint had it counts no
more for anybody. Must not know events or requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.engine.kv.holders import L2_OWN, L2_SHARED, Holder
from routing.engine.kv.index import KEY_MASK, SHARD_MASK, Index

LIMIT = 262_144  # of one holder; about 50 bytes each


def told(index: Index, holder: Holder, keys: Sequence[int]) -> int:
    """These ids are said to be in storage. Returns how many older hints made room."""
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


def denied(index: Index, worker: str, names: Sequence[int]) -> int:
    """A worker's engine did not find these in storage. Takes back every hint of storage which all
    share, and this worker's of its own. Returns of how many blocks there were any."""
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
