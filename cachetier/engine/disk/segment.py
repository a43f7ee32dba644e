"""Segment file: append, commit, wipe, seal, verified read, and recovery after a crash.

All calls block and may raise OSError. `append` and `seal` run on the writer thread; `commit` and
wipes may run on two threads under the caller's lock; reads on any thread.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cachetier.engine.disk import format as layout
from cachetier.engine.disk.format import Buffer, FormatError, Record, Seal, Superblock

_SUFFIX: Final = ".seg"
_MAX_VIEWS: Final = 512  # per call; the system limit is 1024
_SCRATCH_BYTES: Final = 1024 * 1024
_scratch = threading.local()


class SyncError(OSError):
    """fsync failed: any unsynced write, wipes included, may be lost."""


class RecoveredRecord(NamedTuple):
    record: Record
    ends_ms: int


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:016x}{_SUFFIX}"


def parse_segment_number(path: Path) -> int | None:
    """Return the segment number from a file name, None for other files."""
    stem, suffix = path.stem, path.suffix
    if suffix != _SUFFIX or len(stem) != 16 or set(stem) - set("0123456789abcdef"):
        return None
    return int(stem, 16)


class SegmentFile:
    """Open segment. `end` is the offset of the next record, `size` the size of the file."""

    def __init__(self, path: Path, fd: int, head: Superblock) -> None:
        self.path = path
        self.fd = fd
        self.number = head.number
        self.head = head
        self.end = head.records_offset
        self.sealed = False
        self.unsynced = True  # written since the last `sync`
        self.voided = False
        self.records: list[Record] = []  # of every slot, until sealed
        self._toc_bytes = 0

    @classmethod
    def create(cls, folder: Path, number: int, target_bytes: int) -> SegmentFile:
        head = Superblock(number, layout.slot_count(target_bytes), target_bytes)
        path = segment_path(folder, number)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, [layout.pack_superblock(head)], 0)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        return cls(path, fd, head)

    @property
    def size(self) -> int:
        return self.end + self._toc_bytes

    def fits(self, key: bytes, length: int) -> bool:
        more = layout.record_bytes(key, length) + layout.TOC_BYTES + len(key)
        room = self.size + more <= self.head.target_bytes
        return room and len(self.records) < self.head.slots

    def append(self, key: bytes, views: Sequence[Buffer], length: int, crc: int) -> Record:
        slot = len(self.records)
        header, own = layout.pack_record(self.number, slot, key, length, crc)
        record = Record(slot, self.end, key, length, own)
        self.unsynced = True
        _write_all(self.fd, [header, *views], self.end)
        self._added(record)
        return record

    def copy(self, source: SegmentFile, record: Record) -> Record:
        """Append another segment's record; raise FormatError if it is corrupt."""
        header, crc = source._header(record)
        slot = len(self.records)
        header, own = layout.pack_record(self.number, slot, record.key, record.length, crc)
        copied = Record(slot, self.end, record.key, record.length, own)
        self.unsynced = True
        _write_all(self.fd, [header], self.end)
        place, check = copied.value_offset, 0
        for chunk in source._chunks(record):
            check = zlib.crc32(chunk, check)
            _write_all(self.fd, [chunk], place)
            place += len(chunk)
        if check != crc:
            raise FormatError("the value does not fit its checksum")
        self._added(copied)
        return copied

    def _added(self, record: Record) -> None:
        self.records.append(record)
        self.end = record.end
        self._toc_bytes += layout.TOC_BYTES + len(record.key)

    def commit(self, slot: int, ends_ms: int, crc: int) -> None:
        """Make the record valid, or change its expiry."""
        self.unsynced = True
        data = layout.pack_slot(self.number, slot, ends_ms, crc)
        _write_all(self.fd, [data], layout.slot_offset(slot))

    def wipe(self, slot: int) -> None:
        """Invalidate the record, also for recovery after a crash."""
        self.unsynced = True
        _write_all(self.fd, [layout.EMPTY_SLOT], layout.slot_offset(slot))

    def wipe_many(self, slots: Sequence[int]) -> None:
        """Invalidate many records with one write; no commit may run concurrently."""
        if not slots:
            return
        self.unsynced = True
        first, last = min(slots), max(slots)
        start = layout.slot_offset(first)
        table = bytearray(_read(self.fd, layout.slot_offset(last + 1) - start, start))
        for slot in slots:
            offset = (slot - first) * layout.SLOT_BYTES
            table[offset : offset + layout.SLOT_BYTES] = layout.EMPTY_SLOT
        _write_all(self.fd, [table], start)

    def void(self) -> None:
        """Invalidate all records with one full-page write, which needs no read."""
        self.voided = True
        _write_all(self.fd, [bytes(layout.HEAD_BYTES)], 0)

    def unlink(self) -> None:
        """Remove the file if the path is still this file: the folder may have been replaced."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return
        mine = os.fstat(self.fd)
        if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
            self.path.unlink(missing_ok=True)

    def cut(self) -> None:
        """Truncate the partial record of a failed write."""
        os.ftruncate(self.fd, self.end)

    def seal(self) -> None:
        """Write the toc for fast opening; no appends afterwards."""
        toc = layout.pack_toc(self.records)
        seal = Seal(self.end, len(toc), zlib.crc32(toc), len(self.records))
        _write_all(self.fd, [toc], self.end)
        _write_all(self.fd, [layout.pack_seal(seal, self.number)], layout.SEAL_OFFSET)
        self.sealed = True
        self.records = []

    def sync(self) -> None:
        """Sync to disk; callable from any thread. Raise SyncError."""
        self.unsynced = False
        try:
            os.fdatasync(self.fd)
        except OSError as exc:
            raise SyncError(exc.errno, os.strerror(exc.errno or 0)) from None

    def close(self) -> None:
        os.close(self.fd)

    def read(self, record: Record, views: Sequence[memoryview] | None = None) -> None:
        """Verify a value, read into `views` or the page cache; raise FormatError or OSError."""
        _, crc = self._header(record)
        if views is None:
            crc_read = layout.value_crc(self._chunks(record))
        else:
            _read_into(self.fd, views, record.value_offset)
            crc_read = layout.value_crc(views)
        if crc_read != crc:
            raise FormatError("the value does not fit its checksum")

    def _header(self, record: Record) -> tuple[bytes, int]:
        header = os.pread(self.fd, record.value_offset - record.offset, record.offset)
        there, crc = layout.parse_record(header, self.number, record.offset)
        if there != record:
            raise FormatError("another record is stored at its place")
        return header, crc

    def _chunks(self, record: Record) -> Iterator[memoryview]:
        """Yield the value in chunks from a per-thread buffer that each chunk overwrites."""
        if not hasattr(_scratch, "memory"):
            _scratch.memory = memoryview(bytearray(_SCRATCH_BYTES))
        place = record.value_offset
        while place < record.end:
            piece = _scratch.memory[: min(_SCRATCH_BYTES, record.end - place)]
            _read_into(self.fd, [piece], place)
            place += len(piece)
            yield piece

    @classmethod
    def open(cls, path: Path) -> tuple[SegmentFile, list[RecoveredRecord]]:
        """Return the sealed segment and its valid records; raise FormatError if invalid."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            head = os.pread(fd, layout.HEAD_BYTES, 0)
            block = layout.parse_superblock(head)
            if block.number != parse_segment_number(path):
                raise FormatError(f"segment {block.number:x} has another segment's name")
            segment = cls(path, fd, block)
            return segment, segment._find_records(head)
        except BaseException:
            os.close(fd)
            raise

    def _find_records(self, head: bytes) -> list[RecoveredRecord]:
        size = os.fstat(self.fd).st_size
        try:
            seal = layout.parse_seal(head, self.number)
            toc = os.pread(self.fd, seal.toc_length, seal.toc_offset)
            records = list(layout.parse_toc(toc, seal))
            self.end, self._toc_bytes, self.sealed = seal.toc_offset, len(toc), True
        except FormatError:  # unsealed, or its toc is damaged: scan the records
            records = list(self._walk(size))
            for record in records:
                self._added(record)
        record_counts = self._counting(records)
        if not self.sealed:
            self._seal_again()
        return record_counts

    def _walk(self, size: int) -> Iterator[Record]:
        offset = self.head.records_offset
        for slot in range(self.head.slots):
            try:
                fixed = os.pread(self.fd, layout.RECORD_BYTES, offset)
                whole = os.pread(self.fd, layout.RECORD_BYTES + layout.key_length(fixed), offset)
                record, _ = layout.parse_record(whole, self.number, offset)
            except FormatError:
                return
            if record.slot != slot or record.end > size:
                return
            yield record
            offset = record.end

    def _counting(self, records: Sequence[Record]) -> list[RecoveredRecord]:
        table = os.pread(self.fd, len(records) * layout.SLOT_BYTES, layout.HEAD_BYTES)
        recovered: list[RecoveredRecord] = []
        for record in records:
            offset = record.slot * layout.SLOT_BYTES
            data = table[offset : offset + layout.SLOT_BYTES]
            if len(data) < layout.SLOT_BYTES:
                break
            slot = layout.parse_slot(data, self.number, record.slot)
            if slot is not None and slot[1] == record.crc:
                recovered.append(RecoveredRecord(record, slot[0]))
        return recovered

    def _seal_again(self) -> None:
        """Truncate the incomplete tail and seal; a read-only disk can still be read."""
        try:
            self.cut()
            self.seal()
        except OSError:
            self.records = []
            self.sealed = True


def _write_all(fd: int, views: Sequence[Buffer], offset: int) -> None:
    _transfer(os.pwritev, fd, views, offset, OSError(errno.EIO, "nothing was written"))


def _read_into(fd: int, views: Sequence[memoryview], offset: int) -> None:
    _transfer(os.preadv, fd, views, offset, FormatError("the file ends within the record"))


def _transfer(
    call: Callable[[int, list[memoryview], int], int],
    fd: int,
    views: Sequence[Buffer],
    offset: int,
    stopped: Exception,
) -> None:
    """Move all bytes of `views`; raise `stopped` if a call moves none."""
    rest = [memoryview(view) for view in views if len(view)]
    first = 0
    while first < len(rest):
        count = call(fd, rest[first : first + _MAX_VIEWS], offset)
        if count <= 0:
            raise stopped
        offset += count
        while first < len(rest) and count >= len(rest[first]):
            count -= len(rest[first])
            first += 1
        if count:
            rest[first] = rest[first][count:]


def _read(fd: int, length: int, offset: int) -> bytes:
    data = os.pread(fd, length, offset)
    if len(data) != length:
        raise OSError(errno.EIO, "the file is shorter than it was")
    return data
