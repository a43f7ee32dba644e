"""Prefix cache of one simulated worker: blocks of tokens, held or evictable.

Follows vLLM's block pool: a block in use is never evicted; freed blocks are queued with a request's
last block first and evicted in that order, so that prefixes lose their ends; a block keeps its
content until it is reused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

NOTHING = -1  # predecessor of a prompt's first block where blocks are numbers

Block = TypeVar("Block", int, bytes)
_Block_contra = TypeVar("_Block_contra", int, bytes, contravariant=True)


class Journal(Protocol[_Block_contra]):
    """Receives each change: (block, predecessor) of a stored one, (block, None) of an evicted."""

    def append(self, change: tuple[_Block_contra, _Block_contra | None], /) -> None: ...


class BlockCache(Generic[Block]):
    __slots__ = ("_blank", "_free", "_used", "evicted", "journal", "size")

    def __init__(self, size: int, journal: Journal[Block] | None = None) -> None:
        self.size = size
        self.evicted = 0
        self.journal: Journal[Block] | None = journal
        self._blank = size  # empty blocks that no request holds
        self._free: OrderedDict[Block, None] = OrderedDict()  # filled, unused
        self._used: dict[Block, int] = {}  # block -> number of requests using it

    def __len__(self) -> int:
        return len(self._used) + len(self._free)

    def __contains__(self, block: Block) -> bool:
        return block in self._used or block in self._free

    def match(self, chain: Sequence[Block]) -> int:
        """Return the number of leading blocks held."""
        used, free = self._used, self._free
        for count, block in enumerate(chain):
            if block not in used and block not in free:
                return count
        return len(chain)

    @property
    def room(self) -> int:
        """Return the number of unused blocks."""
        return self._blank + len(self._free)

    @property
    def usage(self) -> float:
        """Return the share held by requests, as in vllm:kv_cache_usage_perc."""
        return (self.size - self.room) / self.size

    def take(self, chain: Sequence[Block], matched: int, fresh: int) -> bool:
        """Hold the first `matched` blocks and allocate `fresh` ones; return False if there is no
        room.
        """
        used, free = self._used, self._free
        idle = sum(1 for block in chain[:matched] if block in free)
        if fresh > self._blank + len(free) - idle:
            return False
        for block in chain[:matched]:
            if block in free:
                del free[block]
                used[block] = 1
            else:
                used[block] += 1
        self._blank -= fresh
        while self._blank < 0:
            block, _ = free.popitem(last=False)
            self.evicted += 1
            if self.journal is not None:
                self.journal.append((block, None))
            self._blank += 1
        return True

    def fill(self, block: Block, before: Block) -> bool:
        """Fill an allocated block; return False if another block has the same content."""
        if block in self:
            return False
        self._used[block] = 1
        if self.journal is not None:
            self.journal.append((block, before))
        return True

    def free(self, held: Sequence[Block], blank: int, answered: Sequence[Block] = ()) -> None:
        """Release `held` and `blank` blocks; `answered` ones, allocated and never announced, become
        evictable under their names.
        """
        used, free = self._used, self._free
        for block in answered:
            free[block] = None
        for block in reversed(held):
            users = used[block] - 1
            if users:
                used[block] = users
            else:
                del used[block]
                free[block] = None
        self._blank += blank

    def reset(self) -> bool:
        """Drop every block. Return False while a request holds one."""
        if self.room < self.size:
            return False
        self._free.clear()
        self._blank = self.size
        return True
