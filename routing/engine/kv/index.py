"""Map of blocks to holders, written by `events`, queried by `match`.

No operation takes long, whatever the size. `shards` maps a block name (see `chain`) to an interned
mask with four bits per holder; each holder maps engine ids to names. An emptied holder gets new
bits at once and the old ones are swept incrementally.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from routing.engine.kv import chain
from routing.engine.kv.holders import BITS, GPU, L1, L2_OWN, L2_SHARED, Holder, Rank
from routing.engine.kv.wire import Tier

SHARDS = 1024  # bounds the resize time of a dict (0.5 s at 10 million entries)
SHARD_MASK = SHARDS - 1
# 60 bits of a name: such an int takes 32 bytes, a larger one 48.
KEY_MASK = 2**60 - 1
_SWEEP_BUCKETS = 16  # about 200 blocks
_MASKS_LIMIT = 65_536
HINTS_LIMIT = 262_144  # per holder; about 50 bytes each
MAX_SAMPLED = 4096  # sampled holder entries, about 1 µs each
TIERS = ("gpu", "l1", "l2")
_TIER_MASKS = (1 << GPU, 1 << L1, 1 << L2_OWN | 1 << L2_SHARED)
_ALL: int = 2**BITS - 1


class RemovalObserver(Protocol):
    def evicted(self, worker: str, tier: Tier, names: Sequence[int | None]) -> None:
        """Note removed blocks; None: not in the index."""

    def stored_in_l2(self, names: Sequence[int], at: float) -> None:
        """Note stored blocks; `at` by the worker's clock, 0: unknown."""

    def cleared(self, worker: str) -> None: ...


class Index:
    """Index of the KV blocks of all workers. `secret` keys the names (`chain.root`)."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.shards: list[dict[int, int]] = [{} for _ in range(SHARDS)]
        self.ranks: dict[tuple[str, int], Rank] = {}
        self.slots: list[Holder | None] = []  # None: free, or being swept
        self.device_bits = 0  # of all holders
        self.shared_bits = 0
        self.several_ranks = False  # any worker ever had several ranks
        self.tiered = False  # any tier but the device was reported
        self.observer: RemovalObserver | None = None
        self.on_removed: Callable[[str, Sequence[int | None]], None] = lambda _worker, _names: None
        self.on_clear: Callable[[str], None] = lambda _worker: None
        self._free: list[int] = []
        self._masks: dict[int, int] = {}
        self._roots: dict[tuple[str, str, str], int] = {}
        self._sweeps: deque[Iterator[None]] = deque()

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def root(self, model: str, lora: str = "", salt: str = "") -> int:
        """Return the chain seed of a model, adapter and cache salt."""
        name = (model, lora, salt)
        root = self._roots.get(name)
        if root is None:
            if len(self._roots) >= 1024:  # bounded: callers choose salts
                self._roots.clear()
            root = self._roots[name] = chain.chain_root(self._secret, model, lora, salt)
        return root

    def block_sizes(self, worker: str = "") -> set[int]:
        """Return the block sizes in tokens; a request needs one chain for each."""
        ranks = (rank for rank in self.ranks.values() if worker in ("", rank.worker))
        return {size for rank in ranks for size in rank.block_sizes}

    def holders(self, name: int) -> int:
        name &= KEY_MASK
        return self.shards[name & SHARD_MASK].get(name, 0)

    def device_of(self, worker: str) -> tuple[int, int]:
        """Return a worker's block size and its device bits over all ranks and groups."""
        size = bits = number = 0
        while (rank := self.ranks.get((worker, number))) is not None:
            for holder in rank.groups.values():
                bits |= holder.bits[GPU]
            size = max(size, *rank.block_sizes, 0)
            number += 1
        return size, bits

    def ranks_of(self, worker: str) -> list[Rank]:
        return [rank for rank in self.ranks.values() if rank.worker == worker]

    def rank(self, worker: str, number: int = 0, model: str = "") -> Rank:
        rank = self.ranks.get((worker, number))
        self.several_ranks = self.several_ranks or number > 0
        if rank is None:
            rank = self.ranks[worker, number] = Rank(worker, number, model)
        return rank

    def forget(self, worker: str, number: int | None = None) -> None:
        for name, rank in list(self.ranks.items()):
            if name[0] == worker and number in (None, name[1]):
                self.empty(rank)
                del self.ranks[name]

    def empty(self, rank: Rank) -> None:
        """Drop all blocks of a rank in constant time."""
        for holder in rank.groups.values():
            self.slots[holder.slot] = None
            self.device_bits &= ~holder.bits[GPU]
            self.shared_bits &= ~holder.bits[L2_SHARED]
            self._sweeps.append(self._swept(holder))
        rank.groups = {}
        rank.windows = set()
        rank.prefix_groups = set()
        rank.block_sizes = set()
        rank.epoch += 1

    def holder(self, rank: Rank, group: int) -> Holder:
        holder = rank.groups.get(group)
        if holder is None:
            holder = rank.groups[group] = self._new_holder(rank, group)
        return holder

    def _new_holder(self, rank: Rank, group: int) -> Holder:
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self.slots)
            self.slots.append(None)
        holder = self.slots[slot] = Holder(rank, group, slot)
        self.device_bits |= holder.bits[GPU]
        self.shared_bits |= holder.bits[L2_SHARED]
        return holder

    @property
    def sweeping(self) -> bool:
        return bool(self._sweeps)

    def sweep(self) -> None:
        if not self._sweeps:
            return
        for _ in self._sweeps[0]:
            return
        self._sweeps.popleft()

    def _swept(self, holder: Holder) -> Iterator[None]:
        shards = self.shards
        keep = ~holder.all_bits
        for number, names in enumerate(holder.blocks.values()):
            for name in names:
                short = name & KEY_MASK
                shard = shards[short & SHARD_MASK]
                mask = shard.get(short)
                if mask is not None:
                    mask &= keep
                    if mask:
                        shard[short] = self.mask(mask)
                    else:
                        del shard[short]
            if number % _SWEEP_BUCKETS == 0:
                yield
        self._free.append(holder.slot)

    def mask(self, mask: int) -> int:
        masks = self._masks
        if len(masks) >= _MASKS_LIMIT:
            masks.clear()
        return masks.setdefault(mask, mask)

    def set(self, name: int, bits: int) -> None:
        name &= KEY_MASK
        shard = self.shards[name & SHARD_MASK]
        shard[name] = self.mask(shard.get(name, 0) | bits)

    def held(self, holder: Holder, name: int) -> int:
        name &= KEY_MASK
        return self.shards[name & SHARD_MASK].get(name, 0) & holder.all_bits

    def unset(self, holder: Holder, name: int, bits: int) -> int:
        """Clear bits; return the holder's remaining ones."""
        name &= KEY_MASK
        shard = self.shards[name & SHARD_MASK]
        mask = shard.get(name)
        if mask is None:
            return 0
        if mask & bits:
            mask &= ~bits
            if mask:
                shard[name] = self.mask(mask)
            else:
                del shard[name]
        return mask & holder.all_bits


def count_blocks(index: Index, most: int = MAX_SAMPLED) -> dict[str, dict[str, int]]:
    """Return block counts by worker id and tier; workers without any event are omitted.

    Exact for small or device-only indexes, else extrapolated from a sample of shards (blocks are
    sharded by hash), so that a call takes a few milliseconds.
    """
    counted = {rank.worker: dict.fromkeys(TIERS, 0) for rank in index.ranks.values()}
    if not index.tiered:
        for rank in index.ranks.values():
            counted[rank.worker]["gpu"] += rank.blocks
        return counted
    masks: dict[int, int] = {}
    block_count = shards = 0
    for shard in index.shards:
        if block_count >= most:
            break
        for mask in shard.values():
            masks[mask] = masks.get(mask, 0) + 1
            block_count += mask.bit_count()
        shards += 1
    scale = SHARDS / shards
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


def add_hints(index: Index, holder: Holder, keys: Sequence[int]) -> int:
    """Add hints about blocks in storage (L2), which evicts without events; return the number of
    older ones dropped for them.
    """
    hints = holder.hints
    hints.extend(keys)
    bits = holder.bits[L2_OWN] | holder.bits[L2_SHARED]
    forgotten = 0
    while len(hints) > HINTS_LIMIT:
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
    for rank in index.ranks_of(worker):
        for holder in rank.groups.values():
            bits |= holder.bits[L2_OWN]
    removed = 0
    for name in names:
        short = name & KEY_MASK
        shard = index.shards[short & SHARD_MASK]
        mask = shard.get(short, 0)
        if mask & bits:
            removed += 1
            if left := mask & ~bits:
                shard[short] = index.mask(left)
            else:
                del shard[short]
    return removed
