"""Blocks whose parent is unknown.

They do not count until the parent arrives; removals apply to them too; the oldest are dropped over
the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
        found = False
        for run in list(self._by_key.get(key, ())):
            if run.tier is tier and key not in run.gone:
                found = True
                run.gone.add(key)
                if len(run.gone) == len(set(run.keys)):
                    self._forget(run)
        return found

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
