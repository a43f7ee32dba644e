"""Disk index: one dictionary from key to a small integer, and compact tables per segment.

No I/O. About 330 bytes per entry with 140-byte keys (docs/cache-disk.md), independent of value
size. Expiry times are wall clock milliseconds, since they outlive the process. One thread only.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from cachetier.engine.disk.format import NO_EXPIRY, RECORD_BYTES, Record
from cachetier.engine.disk.segment import SegmentFile

_SLOT_BITS: Final = 16
_SLOT_MASK: Final = (1 << _SLOT_BITS) - 1
_MANY_USES: Final = 255
# Measured bytes: key object 33, dictionary slot 100, its integer 32, table row 37.
ENTRY_BYTES: Final = 210


class Segment:
    """Index of one segment: a row per slot, and the number of readers."""

    def __init__(self, file: SegmentFile, size: int) -> None:
        self.file = file
        self.size = size  # bytes on disk
        self.is_active = True  # records may still be appended
        self.live = 0
        self.live_bytes = 0
        self.risen = 0  # live records that are in memory as well
        self.pins = 0
        self.retired = False
        self.keys: list[bytes | None] = []
        self.ends = array("q")
        self._offsets = array("Q")
        self._lengths = array("Q")
        self._crcs = array("I")
        self._uses = bytearray()
        self._has_risen = bytearray()

    def put(self, record: Record, ends_ms: int) -> None:
        while len(self.keys) <= record.slot:
            self.keys.append(None)
            for column in (self._offsets, self._lengths, self._crcs, self.ends):
                column.append(0)
            self._uses.append(0)
            self._has_risen.append(0)
        slot = record.slot
        self.keys[slot] = record.key
        self._offsets[slot], self._lengths[slot] = record.offset, record.length
        self._crcs[slot], self.ends[slot] = record.crc, ends_ms
        self.live += 1
        self.live_bytes += RECORD_BYTES + len(record.key) + record.length

    def take(self, slot: int) -> None:
        key = self.keys[slot]
        assert key is not None
        self.keys[slot] = None
        self.live -= 1
        self.sink(slot)
        self.live_bytes -= RECORD_BYTES + len(key) + self._lengths[slot]

    def record(self, slot: int) -> Record:
        key = self.keys[slot]
        assert key is not None
        return Record(slot, self._offsets[slot], key, self._lengths[slot], self._crcs[slot])

    def length(self, slot: int) -> int:
        return self._lengths[slot]

    def use(self, slot: int) -> int:
        uses = self._uses[slot]
        if uses < _MANY_USES:
            self._uses[slot] = uses = uses + 1
        return uses

    def rise(self, slot: int) -> None:
        self.risen += not self._has_risen[slot]
        self._has_risen[slot] = 1

    def sink(self, slot: int) -> None:
        self.risen -= self._has_risen[slot]
        self._has_risen[slot] = 0


class Index:
    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}  # oldest first
        self._places: dict[bytes, int] = {}  # key -> segment number and slot in one integer
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    @property
    def bytes_estimated(self) -> int:
        return self._key_bytes + len(self._places) * ENTRY_BYTES

    def keys(self) -> Iterator[bytes]:
        return iter(self._places)

    def find(self, key: bytes) -> tuple[Segment, int] | None:
        place = self._places.get(key)
        if place is None:
            return None
        return self.segments[place >> _SLOT_BITS], place & _SLOT_MASK

    def open(self, segment: Segment) -> None:
        self.segments[segment.file.number] = segment

    def put(self, segment: Segment, record: Record, ends_ms: int) -> None:
        """Add a key, which must not be in the index."""
        assert record.key not in self._places
        segment.put(record, ends_ms)
        self._key_bytes += len(record.key)
        self._places[record.key] = segment.file.number << _SLOT_BITS | record.slot

    def take(self, key: bytes) -> tuple[Segment, int] | None:
        place = self._places.pop(key, None)
        if place is None:
            return None
        segment, slot = self.segments[place >> _SLOT_BITS], place & _SLOT_MASK
        segment.take(slot)
        self._key_bytes -= len(key)
        return segment, slot

    def retire(self, segment: Segment) -> int:
        """Remove a segment and its keys; return their number."""
        count = segment.live
        for key in segment.keys:
            if key is not None:
                del self._places[key]
                self._key_bytes -= len(key)
        segment.retired = True
        segment.keys = []
        segment.live = segment.live_bytes = segment.risen = 0
        del self.segments[segment.file.number]
        return count

    def forget_all(self) -> None:
        self.segments.clear()
        self._places.clear()
        self._key_bytes = 0

    def ended(self, segment: Segment, now_ms: int) -> list[bytes]:
        """Return the expired keys of a segment."""
        ends = segment.ends
        return [
            key
            for slot, key in enumerate(segment.keys)
            if key is not None and ends[slot] != NO_EXPIRY and ends[slot] <= now_ms
        ]

    def oldest(self) -> Segment | None:
        return next((segment for segment in self.segments.values() if not segment.is_active), None)

    def emptiest(self, below: float) -> Segment | None:
        """Return the segment with the smallest live share, if below `below` of its size."""
        sealed = [segment for segment in self.segments.values() if not segment.is_active]
        emptiest = min(sealed, key=lambda one: one.live_bytes / one.size, default=None)
        return (
            emptiest
            if emptiest is not None and emptiest.live_bytes < below * emptiest.size
            else None
        )
