"""Which pages of an arena are free. Numbers only: no memory is touched here.

Free pages are kept as runs, neighbours joined. A request gets one run wherever one is long enough
(the shortest that is, so that long ones stay), else several, the longest first: as long as enough
pages are free there is always an answer, whatever the fragmentation. Pages never used lie together
in the last and longest run, so best fit also uses memory again before it uses more of it.

Pages can be taken out of the pool (`retire`) and brought back (`restore`), which is how an arena
shrinks and grows while values lie in it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

# (first page, how many)
Run = tuple[int, int]


class Pages:
    """Pages `first` to `first + count - 1`, all free."""

    def __init__(self, first: int, count: int) -> None:
        self.free = 0
        self._length: dict[int, int] = {}  # first page of a free run -> how many
        self._start: dict[int, int] = {}  # page after a free run -> its first page
        self._by_length: dict[int, dict[int, None]] = {}  # length -> first pages, oldest first
        self._lengths: list[int] = []  # the keys of _by_length, in order
        self._retired: list[Run] = []
        self._top = first
        self.retired = 0
        self.extend(count)

    @property
    def top(self) -> int:
        """The first page that was never in the pool."""
        return self._top

    # -- taking and giving ---------------------------------------------------------------------
    def take(self, count: int) -> list[Run] | None:
        """Runs of together `count` pages, None if fewer are free."""
        if count > self.free:
            return None
        runs: list[Run] = []
        while count:
            place = bisect_left(self._lengths, count)
            if place == len(self._lengths):  # none is long enough: the longest, and then the rest
                place -= 1
            length = self._lengths[place]
            start = next(iter(self._by_length[length]))
            part = min(length, count)
            self._remove(start, length)
            if part < length:
                self._add(start + part, length - part)
            runs.append((start, part))
            count -= part
        return runs

    def give(self, runs: Iterable[Run]) -> None:
        for start, count in runs:
            first, length = start, count
            before = self._start.get(start)
            if before is not None:
                first = before
                length += start - before
                self._remove(before, start - before)
            after = self._length.get(start + count)
            if after is not None:
                length += after
                self._remove(start + count, after)
            self._add(first, length)

    # -- the pool ------------------------------------------------------------------------------
    def extend(self, count: int) -> None:
        """`count` pages more, never used before."""
        if count:
            self.give([(self._top, count)])
            self._top += count

    def retire(self, count: int) -> list[Run]:
        """Take up to `count` free pages out of the pool; which they were."""
        runs = self.take(min(count, self.free)) or []
        self._retired += runs
        self.retired += sum(length for _, length in runs)
        return runs

    def withdraw(self, run: Run, parts: Iterable[Run]) -> None:
        """Take these parts of a free run out of the pool."""
        start, length = run
        self._remove(start, length)
        end = start + length
        for first, count in parts:
            if first > start:
                self._add(start, first - start)
            self._retired.append((first, count))
            self.retired += count
            start = first + count
        if end > start:
            self._add(start, end - start)

    def restore(self, count: int) -> int:
        """Bring back up to `count` retired pages; how many there were."""
        brought = 0
        while brought < count and self._retired:
            start, length = self._retired.pop()
            part = min(length, count - brought)
            if part < length:
                self._retired.append((start + part, length - part))
            self.give([(start, part)])
            brought += part
        self.retired -= brought
        return brought

    def runs(self) -> list[Run]:
        """Every free run, for tests and for those who look at fragmentation."""
        return sorted(self._length.items())

    # -- inside --------------------------------------------------------------------------------
    def _add(self, start: int, length: int) -> None:
        self._length[start] = length
        self._start[start + length] = start
        same = self._by_length.get(length)
        if same is None:
            self._by_length[length] = {start: None}
            insort(self._lengths, length)
        else:
            same[start] = None
        self.free += length

    def _remove(self, start: int, length: int) -> None:
        del self._length[start]
        del self._start[start + length]
        same = self._by_length[length]
        del same[start]
        if not same:
            del self._by_length[length]
            del self._lengths[bisect_left(self._lengths, length)]
        self.free -= length
