"""Which segments there are, how much of the disk they take, and which one goes when room is needed.

Mostly dead segments are compacted (what is left of them is moved), else the oldest one goes whole.
A segment is voided on disk before it is forgotten here, and closed when its last reader is done.
The loop's thread only.
"""

from __future__ import annotations

from typing import Final

from cachetier.engine.disk.counters import DiskCounters
from cachetier.engine.disk.index import Index, Segment
from cachetier.engine.disk.pending_writes import PendingWrites
from cachetier.engine.disk.segment import SegmentFile
from cachetier.engine.disk.writer import Write, WriteOutcome, Writer

# A segment of which less is left is worth moving to make room; of a fuller one the age decides.
_COMPACT_BELOW: Final = 1 / 3
# Part of the limit from which on the oldest segments are about to go.
_NEARLY_FULL: Final = 0.75
# With so many segments' room free beyond the next, a limit which a full disk set is raised again.
_PLENTY: Final = 4


class Space:
    def __init__(
        self,
        index: Index,
        capacity_bytes: int,
        segment_bytes: int,
        max_index_bytes: int,
        counters: DiskCounters,
        under_way: PendingWrites,
        writer: Writer,
    ) -> None:
        self.limit = capacity_bytes  # lower while the disk has no room for all of it
        self._index = index
        self._capacity = capacity_bytes
        self._segment_bytes = segment_bytes
        self._max_index_bytes = max_index_bytes
        self._counters = counters
        self._under_way = under_way
        self._writer = writer
        self._leaving: dict[SegmentFile, Segment] = {}  # forgotten and not closed yet
        self._victim: Segment | None = None  # being compacted
        self._moves_left = 0

    @property
    def used_bytes(self) -> int:
        return sum(segment.size for segment in self._leaving.values()) + self._kept_bytes

    @property
    def _kept_bytes(self) -> int:
        return sum(segment.size for segment in self._index.segments.values())

    # -- the writer's news ---------------------------------------------------------------------
    def opened(self, file: SegmentFile, free_bytes: int) -> None:
        segment = Segment(file, self._segment_bytes)
        self._index.open(segment)
        if free_bytes >= _PLENTY * self._segment_bytes:
            self.limit = min(self.limit + self._segment_bytes, self._capacity)
        self.make_room()

    def finished(self, file: SegmentFile, size: int) -> None:
        segment = self._index.segments.get(file.number)
        if segment is None:
            return
        segment.size, segment.is_active = size, False
        self.remove_if_empty(segment)
        self.make_room()

    def closed(self, file: SegmentFile) -> None:
        self._leaving.pop(file, None)

    def disk_is_full(self) -> None:
        """What is used now is all there is: since room for one more is kept, this gives some."""
        self.limit = max(self.used_bytes, 2 * self._segment_bytes)
        self.make_room()

    def goes_soon(self, segment: Segment) -> bool:
        """Whether a value which comes down again is better written anew than left there."""
        if self._kept_bytes < self.limit * _NEARLY_FULL:
            return False
        segments = self._index.segments
        older = sum(number < segment.file.number for number in segments)
        return older < len(segments) // 4

    # -- leaving -------------------------------------------------------------------------------
    def retire(self, segment: Segment) -> OSError | None:
        """Forget a segment, for good before this returns; the error if the disk refused that."""
        trouble: OSError | None = None
        self._index.retire(segment)
        self._leaving[segment.file] = segment
        try:
            segment.file.void()
        except OSError as exc:
            trouble = _unlink(segment.file, exc)
        self._remove_if_unread(segment)
        return trouble

    def unpin(self, segment: Segment) -> None:
        segment.pins -= 1
        self._remove_if_unread(segment)

    def _remove_if_unread(self, segment: Segment) -> None:
        if segment.retired and not segment.pins:
            self._writer.remove(segment.file)

    def remove_if_empty(self, segment: Segment) -> None:
        if not segment.live and not segment.is_active and not segment.retired:
            self.retire(segment)

    def retire_all(self) -> None:
        for segment in list(self._index.segments.values()):
            self.retire(segment)

    # -- making room ---------------------------------------------------------------------------
    def make_room(self, *, may_compact: bool = True) -> None:
        """Keep room for one segment more than there are."""
        while self._is_short or self._index_is_large:
            if self._victim is not None:
                return  # room is being made
            compacts = may_compact and not self._index_is_large and not self._writer.halted
            victim = self._index.emptiest(_COMPACT_BELOW) if compacts else None
            if victim is not None and victim.live:
                self._compact(victim)
                return
            if victim is not None:  # one found at the start may have nothing left
                self.retire(victim)
                continue
            oldest = self._index.oldest()
            if oldest is None:
                return
            self._counters.removed_segments += 1
            self._counters.evicted += oldest.live
            self.retire(oldest)

    @property
    def _is_short(self) -> bool:
        read = sum(segment.size for segment in self._leaving.values() if segment.pins)
        return self._kept_bytes + read + self._segment_bytes > self.limit

    @property
    def _index_is_large(self) -> bool:
        return self._index.bytes_estimated > self._max_index_bytes

    def _compact(self, victim: Segment) -> None:
        moves = [
            Write(
                key,
                victim.length(slot),
                victim.ends[slot],
                source=(victim.file, victim.record(slot)),
            )
            for slot, key in enumerate(victim.keys)
            if key is not None
        ]
        victim.pins += 1
        self._counters.compactions += 1
        self._victim, self._moves_left = victim, len(moves)
        for move in moves:
            self._under_way.add(move)
            self._writer.move(move)

    def moved(self, outcome: WriteOutcome) -> None:
        """One of the victim's records was moved, or could not be."""
        self._counters.moved += outcome is WriteOutcome.WRITTEN
        self._moves_left -= 1
        if self._moves_left:
            return
        victim, self._victim = self._victim, None
        assert victim is not None
        self.remove_if_empty(victim)
        self.unpin(victim)
        self.make_room(may_compact=not victim.live)  # else it would be tried for ever


def _unlink(file: SegmentFile, error: OSError) -> OSError | None:
    """The other way to have no record of it count."""
    try:
        file.unlink()
    except OSError:
        return error
    return None
