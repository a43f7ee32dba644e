"""Segment file: only committed, unchanged records at their offset are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachetier.engine.disk import format as layout
from cachetier.engine.disk.format import NO_EXPIRY, FormatError, Record
from cachetier.engine.disk.segment import SegmentFile, parse_segment_number, segment_path

MIB = 1024 * 1024


def append(file: SegmentFile, key: bytes, value: bytes) -> Record:
    return file.append(key, [memoryview(value)], len(value), layout.value_crc([value]))


def reopened(file: SegmentFile) -> list[tuple[bytes, int]]:
    file.close()
    again, found = SegmentFile.open(file.path)
    again.close()
    return [(one.record.key, one.ends_ms) for one in found]


@pytest.mark.parametrize("sealed", [True, False])
def test_only_committed_records_count(tmp_path: Path, sealed: bool) -> None:
    file = SegmentFile.create(tmp_path, 1, MIB)
    records = [append(file, b"%d" % number, b"value") for number in range(5)]
    file.commit(1, NO_EXPIRY, records[1].crc)
    file.commit(2, 5000, records[2].crc)
    file.commit(3, NO_EXPIRY, records[3].crc)
    file.commit(4, NO_EXPIRY, records[4].crc ^ 1)  # of another record
    file.wipe(3)
    if sealed:
        file.seal()
    assert reopened(file) == [(b"1", NO_EXPIRY), (b"2", 5000)]


def test_wiping_affects_only_the_given_records(tmp_path: Path) -> None:
    file = SegmentFile.create(tmp_path, 1, MIB)
    for number in range(9):
        file.commit(number, NO_EXPIRY, append(file, b"%d" % number, b"v").crc)
    file.wipe_many([])
    file.wipe_many([6, 2, 3])
    assert [key for key, _ in reopened(file)] == [b"0", b"1", b"4", b"5", b"7", b"8"]


def test_another_record_at_the_offset_is_not_read(tmp_path: Path) -> None:
    file = SegmentFile.create(tmp_path, 1, MIB)
    there = append(file, b"there", b"value")
    file.read(there)
    for other in (
        Record(there.slot, there.offset, b"other", there.length, there.crc),
        Record(there.slot, there.offset, there.key, there.length - 1, there.crc),
        Record(there.slot + 1, there.offset, there.key, there.length, there.crc),
    ):
        with pytest.raises(FormatError):
            file.read(other)
    file.close()


def test_segment_is_full_in_bytes_or_in_slots(tmp_path: Path) -> None:
    file = SegmentFile.create(tmp_path, 1, MIB)
    assert not file.fits(b"k", MIB)
    count = 0
    while file.fits(b"k", 100):
        append(file, b"k", bytes(100))
        count += 1
    assert count == file.head.slots == 256
    file.seal()
    assert file.path.stat().st_size == file.size <= MIB
    file.close()


def test_names() -> None:
    assert parse_segment_number(segment_path(Path("/x"), 0xABC)) == 0xABC
    for name in ("abc.seg", "0" * 16, "g" * 16 + ".seg", "0" * 16 + ".tmp"):
        assert parse_segment_number(Path(name)) is None
