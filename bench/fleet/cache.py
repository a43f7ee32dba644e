"""The prefix cache of one simulated worker: blocks of tokens, held or evictable.

Promises what vLLM's block pool does: a block in use is never evicted; freed blocks queue up with
a request's last block first, and the longest free is taken first, so prefixes are cut at their
ends; a block keeps what it holds until it is taken for something else.
Must not know time, requests or steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

NOTHING = -1  # before a prompt's first block; blocks which can be asked for are not negative


# (block, the one before it) came, the first of a prompt after NOTHING; (block, None) is gone.
Change = tuple[int, int | None]


class BlockCache:
    __slots__ = ("_blank", "_free", "_private", "_used", "evicted", "journal", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.evicted = 0
        self.journal: list[Change] | None = None  # set by who wants to be told
        self._blank = size  # blocks which hold nothing
        self._free: OrderedDict[int, None] = OrderedDict()  # hold something, used by nobody
        self._used: dict[int, int] = {}  # block to how many requests use it
        self._private = NOTHING

    def match(self, chain: Sequence[int]) -> int:
        """How many leading blocks are held."""
        used, free = self._used, self._free
        for count, block in enumerate(chain):
            if block not in used and block not in free:
                return count
        return len(chain)

    def holds(self, block: int) -> bool:
        return block in self._used or block in self._free

    @property
    def room(self) -> int:
        """Blocks nobody uses."""
        return self._blank + len(self._free)

    def take(self, chain: Sequence[int], matched: int, fresh: int) -> bool:
        """Hold the first `matched` blocks and make room for `fresh` new ones; False: no room."""
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
        """A block made room for now holds this; False: another one holds it already."""
        if block in self._used or block in self._free:
            return False
        self._used[block] = 1
        if self.journal is not None:
            self.journal.append((block, before))
        return True

    def free(self, held: Sequence[int], full: int, blank: int) -> None:
        """Give back: `held` blocks, `full` ones of an answer nobody will ask for, `blank` ones."""
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
