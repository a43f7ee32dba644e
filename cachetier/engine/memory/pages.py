"""Free page allocator of the arena. Numbers only.

Free pages are kept as merged runs. A request gets the shortest sufficient run, else several,
longest first: it succeeds whenever enough pages are free. Never used pages form the last and
longest run, so best fit reuses memory first.

Pages can be removed from the pool (`retire`) and returned (`restore`) to resize the arena in use.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

# (first page, page count)
Run = tuple[int, int]


class Pages:
    """Pool of pages `first` to `first + count - 1`, initially free."""

    def __init__(self, first: int, count: int) -> None:
        self.free = 0
        self._length: dict[int, int] = {}  # first page of a free run -> page count
        self._start: dict[int, int] = {}  # page after a free run -> its first page
        self._by_length: dict[int, dict[int, None]] = {}  # length -> first pages, oldest first
        self._lengths: list[int] = []  # sorted keys of _by_length
        self._retired: list[Run] = []
        self.top = first  # first page that was never in the pool
        self.retired = 0
        self.extend(count)

    def take(self, count: int) -> list[Run] | None:
        """Allocate `count` pages as runs, None if fewer are free."""
        if count > self.free:
            return None
        runs: list[Run] = []
        while count:
            place = bisect_left(self._lengths, count)
            if place == len(self._lengths):  # none is long enough: combine, longest first
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

    def extend(self, count: int) -> None:
        """Add `count` never used pages."""
        if count:
            self.give([(self.top, count)])
            self.top += count

    def retire(self, count: int) -> list[Run]:
        """Remove up to `count` free pages from the pool and return them."""
        runs = self.take(min(count, self.free)) or []
        self._retired += runs
        self.retired += sum(length for _, length in runs)
        return runs

    def withdraw(self, run: Run, parts: Iterable[Run]) -> None:
        """Remove parts of a free run from the pool."""
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
        """Return up to `count` retired pages to the pool; return their number."""
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
        return sorted(self._length.items())

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
