"""Holders of blocks: a worker's ranks, their cache groups, and blocks without a known parent.

A holder owns four mask bits: device, host memory (L1), own storage, shared storage (L2).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from routing.engine.kv.compact_map import CompactMap
from routing.engine.kv.wire import Tier

LIMIT_BLOCKS = 65_536  # per group and rank: the whole cache of a large worker


@dataclass(slots=True, eq=False)
class OrphanRun:
    """Consecutive blocks of one event, by engine id."""

    parent: int
    keys: list[int]
    data: bytes
    block_size: int
    inputs: list[bytes] | None
    tier: Tier
    shared: bool
    certain: bool
    gone: set[int] = field(default_factory=set)


class OrphanBlocks:
    """Blocks that do not count until their parent arrives.

    Removals apply to them too; the oldest are dropped over the limit.
    """

    __slots__ = ("_by_key", "_by_parent", "_runs", "blocks")

    def __init__(self) -> None:
        self._runs: dict[OrphanRun, None] = {}
        self._by_parent: dict[int, list[OrphanRun]] = {}
        self._by_key: dict[int, list[OrphanRun]] = {}
        self.blocks = 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, run: OrphanRun) -> int:
        """Add a run; return the number of blocks dropped."""
        for key in run.keys:
            for other in self._by_key.get(key, ()):
                if other.tier is run.tier:
                    other.gone.discard(key)
        if any(
            other.keys == run.keys and other.tier is run.tier
            for other in self._by_parent.get(run.parent, ())
        ):
            return 0
        self._runs[run] = None
        self._by_parent.setdefault(run.parent, []).append(run)
        for key in run.keys:
            self._by_key.setdefault(key, []).append(run)
        self.blocks += len(run.keys)
        dropped = 0
        while self.blocks > LIMIT_BLOCKS:
            oldest = next(iter(self._runs))
            dropped += len(oldest.keys)
            self._forget(oldest)
        return dropped

    def remove(self, key: int, tier: Tier) -> bool:
        """Remove a block; return True if it was waiting."""
        removed = False
        for run in list(self._by_key.get(key, ())):
            if run.tier is tier and key not in run.gone:
                removed = True
                run.gone.add(key)
                if len(run.gone) == len(set(run.keys)):
                    self._forget(run)
        return removed

    def children(self, key: int) -> list[OrphanRun]:
        runs = self._by_parent.get(key)
        if runs is None:
            return []
        runs = list(runs)
        for run in runs:
            self._forget(run)
        return runs

    def _forget(self, run: OrphanRun) -> None:
        del self._runs[run]
        self.blocks -= len(run.keys)
        siblings = self._by_parent[run.parent]
        siblings.remove(run)
        if not siblings:
            del self._by_parent[run.parent]
        for key in run.keys:
            runs = self._by_key[key]
            runs.remove(run)
            if not runs:
                del self._by_key[key]


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

    __slots__ = (
        "batch_at",
        "block_sizes",
        "epoch",
        "groups",
        "model",
        "number",
        "prefix_groups",
        "windows",
        "worker",
    )

    def __init__(self, worker: str, number: int, model: str) -> None:
        self.worker = worker
        self.number = number
        self.model = model
        self.groups: dict[int, Holder] = {}
        self.windows: set[int] = set()  # ignored groups
        self.prefix_groups: set[int] = set()  # of a kind that is known to keep prefixes
        self.block_sizes: set[int] = set()
        self.epoch = 0
        self.batch_at = 0.0  # time of the latest batch by the worker's clock; 0: unknown

    @property
    def blocks(self) -> int:
        return sum(len(holder.blocks) for holder in self.groups.values())

    @property
    def parked(self) -> int:
        return sum(holder.parked.blocks for holder in self.groups.values())
