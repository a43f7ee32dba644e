"""Disk space management: which segments exist and which one is removed to make room.

Mostly dead segments are compacted (live records are moved), else the oldest is removed whole. A
segment is voided on disk before it is removed here, and closed after its last reader. Event loop
only.
"""

from __future__ import annotations

from typing import Final

from cachetier.engine.disk.counters import DiskCounters
from cachetier.engine.disk.index import Index, Segment
from cachetier.engine.disk.segment import SegmentFile
from cachetier.engine.disk.values import PendingWrites
from cachetier.engine.disk.writer import Write, WriteOutcome, Writer

# Segments with a smaller live share are compacted; otherwise the oldest is removed.
_COMPACT_BELOW: Final = 1 / 3
# Fill level from which the oldest segments are about to be removed.
_NEARLY_FULL: Final = 0.75
# Free segments beyond the next at which a limit set by a full disk is raised again.
_RAISE_LIMIT_SEGMENTS: Final = 4


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
        self.limit = capacity_bytes  # lower while the disk is full
        self._index = index
        self._capacity = capacity_bytes
        self._segment_bytes = segment_bytes
        self._max_index_bytes = max_index_bytes
        self._counters = counters
        self._under_way = under_way
        self._writer = writer
        self._leaving: dict[SegmentFile, Segment] = {}  # removed but not yet closed
        self._victim: Segment | None = None  # being compacted
        self._moves_left = 0

    @property
    def used_bytes(self) -> int:
        return sum(segment.size for segment in self._leaving.values()) + self._kept_bytes

    @property
    def _kept_bytes(self) -> int:
        return sum(segment.size for segment in self._index.segments.values())

    def opened(self, file: SegmentFile, free_bytes: int) -> None:
        segment = Segment(file, self._segment_bytes)
        self._index.open(segment)
        if free_bytes >= _RAISE_LIMIT_SEGMENTS * self._segment_bytes:
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
        """Lower the limit to the current use; the room kept for one segment is thus freed."""
        self.limit = max(self.used_bytes, 2 * self._segment_bytes)
        self.make_room()

    def goes_soon(self, segment: Segment) -> bool:
        """Return whether to rewrite a returning value, since the segment is removed soon."""
        if self._kept_bytes < self.limit * _NEARLY_FULL:
            return False
        segments = self._index.segments
        older = sum(number < segment.file.number for number in segments)
        return older < len(segments) // 4

    def retire(self, segment: Segment) -> OSError | None:
        """Remove a segment durably; return the error if the disk rejected it."""
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

    def make_room(self, *, may_compact: bool = True) -> None:
        while self._is_short or self._index_is_large:
            if self._victim is not None:
                return  # already in progress
            compacts = may_compact and not self._index_is_large and not self._writer.halted
            victim = self._index.emptiest(_COMPACT_BELOW) if compacts else None
            if victim is not None and victim.live:
                self._compact(victim)
                return
            if victim is not None:  # a recovered segment may have no live records
                self.retire(victim)
                continue
            oldest = self._index.oldest()
            if oldest is None:
                return
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
        """Handle the end of a move of one of the victim's records."""
        self._counters.moved += outcome is WriteOutcome.WRITTEN
        self._moves_left -= 1
        if self._moves_left:
            return
        victim, self._victim = self._victim, None
        assert victim is not None
        self.remove_if_empty(victim)
        self.unpin(victim)
        self.make_room(may_compact=not victim.live)  # avoids endless retries


def _unlink(file: SegmentFile, error: OSError) -> OSError | None:
    """Unlink a segment that could not be voided; return `error` if that fails too."""
    try:
        file.unlink()
    except OSError:
        return error
    return None
