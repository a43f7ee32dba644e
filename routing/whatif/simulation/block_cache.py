"""Prefix cache of one simulated worker: blocks of tokens, held or evictable.

Follows vLLM's block pool: a block in use is never evicted; freed blocks are queued with a request's
last block first and evicted in that order, so that prefixes lose their ends; a block keeps its
content until it is reused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

NOTHING = -1  # predecessor of a prompt's first block; block ids are not negative


# (block, predecessor): stored, the first of a prompt after NOTHING; (block, None): evicted.
Change = tuple[int, int | None]


class BlockCache:
    __slots__ = ("_blank", "_free", "_private", "_used", "evicted", "journal", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.evicted = 0
        self.journal: list[Change] | None = None  # set by the event publisher
        self._blank = size  # empty blocks
        self._free: OrderedDict[int, None] = OrderedDict()  # filled, unused
        self._used: dict[int, int] = {}  # block -> number of requests using it
        self._private = NOTHING

    def match(self, chain: Sequence[int]) -> int:
        """Return the number of leading blocks held."""
        used, free = self._used, self._free
        for count, block in enumerate(chain):
            if block not in used and block not in free:
                return count
        return len(chain)

    def holds(self, block: int) -> bool:
        return block in self._used or block in self._free

    @property
    def room(self) -> int:
        """Return the number of unused blocks."""
        return self._blank + len(self._free)

    def take(self, chain: Sequence[int], matched: int, fresh: int) -> bool:
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
            if self.journal is not None and block >= 0:
                self.journal.append((block, None))
            self._blank += 1
        return True

    def fill(self, block: int, before: int) -> bool:
        """Fill an allocated block; return False if another block has the same content."""
        if block in self._used or block in self._free:
            return False
        self._used[block] = 1
        if self.journal is not None:
            self.journal.append((block, before))
        return True

    def free(self, held: Sequence[int], full: int, blank: int) -> None:
        """Release `held` blocks, `full` blocks of a response that is never requested, `blank`
        ones."""
        used, free = self._used, self._free
        for _ in range(full):
            self._private -= 1
            free[self._private] = None
        for block in reversed(held):
            users = used[block] - 1
            if users:
                used[block] = users
            else:
                del used[block]
                free[block] = None
        self._blank += blank

    def __len__(self) -> int:
        return len(self._used) + len(self._free)
