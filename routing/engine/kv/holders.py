"""The index's records of who holds blocks: a rank of a worker, and its cache groups.

A holder owns four bits in every mask: on the device, in host memory (L1), in storage of its own,
in storage every worker can load from (L2). Must not know events or sockets.
"""

from __future__ import annotations

from collections import deque

from routing.engine.kv.compact_map import CompactMap
from routing.engine.kv.orphans import OrphanBlocks
from routing.engine.kv.wire import Tier

BITS = 4
GPU, L1, L2_OWN, L2_SHARED = range(BITS)
_ALL: int = 2**BITS - 1


class Holder:
    """One full-attention cache group of one rank of one worker."""

    __slots__ = ("bits", "blocks", "claims", "group", "hints", "parked", "rank", "slot", "twins")

    def __init__(self, rank: Rank, group: int, slot: int) -> None:
        self.rank = rank
        self.group = group
        self.slot = slot
        self.bits = tuple(1 << (slot * BITS + kind) for kind in range(BITS))
        self.blocks = CompactMap()  # the engine's id -> own name
        self.parked = OrphanBlocks()
        # Stored twice while held: one removal takes the block out (set semantics), but its name
        # stays known here, for a child which proves that the other copy lives.
        self.twins: dict[int, int] = {}
        # Bits told of without tokens, for ids whose name is not known yet.
        self.claims: dict[int, int] = {}
        self.hints: deque[int] = deque()  # ids told to be in storage, oldest first

    @property
    def all_bits(self) -> int:
        return _ALL << (self.slot * BITS)

    def bit(self, tier: Tier, shared: bool) -> int:
        if tier is Tier.GPU:
            return self.bits[GPU]
        if tier is Tier.L1:
            return self.bits[L1]
        return self.bits[L2_SHARED if shared else L2_OWN]


class Rank:
    """One data-parallel rank of one worker: what one stream of events is about."""

    __slots__ = ("block_sizes", "epoch", "groups", "model", "number", "windows", "worker")

    def __init__(self, worker: str, number: int, model: str) -> None:
        self.worker = worker
        self.number = number
        self.model = model
        self.groups: dict[int, Holder] = {}
        self.windows: set[int] = set()  # groups which are left out
        self.block_sizes: set[int] = set()  # of blocks at position 0
        self.epoch = 0  # how often it was emptied

    @property
    def blocks(self) -> int:
        return sum(len(holder.blocks) for holder in self.groups.values())

    @property
    def parked(self) -> int:
        return sum(holder.parked.blocks for holder in self.groups.values())
