"""Holders of blocks: a worker's ranks and their cache groups.

A holder owns four mask bits: device, host memory (L1), own storage, shared storage (L2).
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
    """One full-attention cache group of one rank."""

    __slots__ = ("bits", "blocks", "claims", "group", "hints", "parked", "rank", "slot", "twins")

    def __init__(self, rank: Rank, group: int, slot: int) -> None:
        self.rank = rank
        self.group = group
        self.slot = slot
        self.bits = tuple(1 << (slot * BITS + kind) for kind in range(BITS))
        self.blocks = CompactMap()  # engine id -> block name
        self.parked = OrphanBlocks()
        # Blocks stored twice: one removal evicts the block (set semantics), but its name stays, for
        # a child that proves the other copy.
        self.twins: dict[int, int] = {}
        # Bits of stores without tokens, for ids without a name yet.
        self.claims: dict[int, int] = {}
        self.hints: deque[int] = deque()  # storage hints, oldest first

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
    """One data-parallel rank of a worker: the subject of one event stream."""

    __slots__ = ("block_sizes", "epoch", "groups", "model", "number", "windows", "worker")

    def __init__(self, worker: str, number: int, model: str) -> None:
        self.worker = worker
        self.number = number
        self.model = model
        self.groups: dict[int, Holder] = {}
        self.windows: set[int] = set()  # ignored groups
        self.block_sizes: set[int] = set()
        self.epoch = 0

    @property
    def blocks(self) -> int:
        return sum(len(holder.blocks) for holder in self.groups.values())

    @property
    def parked(self) -> int:
        return sum(holder.parked.blocks for holder in self.groups.values())
