"""Segment file format: packing and parsing, no I/O.

    head    4 KiB: superblock, and from byte 512 the seal once the segment is full
    slots   16 bytes each: expiry of the slot's record, with check; invalid means no record
    records header, key, value, consecutive
    toc     location of each slot's record, written when the segment is sealed

A record is valid only while its slot is: the slot is written after the record and wiped with one
small write, so dropped records cannot return and partial ones never count. CRC-32 over content and
location detects bit flips and data of other segments. Big endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

Buffer = bytes | bytearray | memoryview

VERSION: Final = 1
HEAD_BYTES: Final = 4096
SLOT_BYTES: Final = 16
SEAL_OFFSET: Final = 512
MAX_SLOTS: Final = 65536
MAX_KEY_BYTES: Final = 65535
NO_EXPIRY: Final = 2**63 - 1  # expiry in wall clock milliseconds of values without expiry

_SUPERBLOCK = struct.Struct(">8sIIQQ")  # magic, version, slots, number, target size
_SEAL = struct.Struct(">8sQQIIQ")  # magic, toc offset, toc length, toc CRC, records, number
_SLOT = struct.Struct(">qII")  # expiry, CRC of the record's header, check
_SLOT_PLACE = struct.Struct(">QIqI")
_RECORD = struct.Struct(">4sIIQQI")  # magic, key length, slot, number, value length, value CRC
_TOC = struct.Struct(">QQII")  # record's offset, value length, key length, CRC of its header
_CRC = struct.Struct(">I")
_MAGIC, _SEAL_MAGIC, _RECORD_MAGIC = b"EMBSEG01", b"EMBSEAL1", b"EMBR"
RECORD_BYTES: Final = _RECORD.size + _CRC.size
TOC_BYTES: Final = _TOC.size
EMPTY_SLOT: Final = bytes(SLOT_BYTES)


class FormatError(ValueError):
    """Invalid bytes; the message names the expected structure."""


@dataclass(frozen=True, slots=True)
class Superblock:
    number: int
    slots: int
    target_bytes: int

    @property
    def records_offset(self) -> int:
        return HEAD_BYTES + self.slots * SLOT_BYTES


@dataclass(frozen=True, slots=True)
class Seal:
    toc_offset: int
    toc_length: int
    toc_crc: int
    records: int


@dataclass(frozen=True, slots=True)
class Record:
    """Location of a record; `crc` covers the header, thus the key and the value's CRC."""

    slot: int
    offset: int
    key: bytes
    length: int
    crc: int

    @property
    def value_offset(self) -> int:
        return self.offset + RECORD_BYTES + len(self.key)

    @property
    def end(self) -> int:
        return self.value_offset + self.length


def slot_count(target_bytes: int) -> int:
    """Return one slot per 16 KiB: a thousandth of the segment, enough for values worth storing."""
    return min(max(target_bytes // 16384, 256), MAX_SLOTS)


def _append_checksum(data: bytes) -> bytes:
    return data + _CRC.pack(zlib.crc32(data))


def _verify_checksum(
    data: Buffer, layout: struct.Struct, magic: bytes, what: str
) -> tuple[int, ...]:
    """Unpack the fields after the magic; raise FormatError."""
    whole = layout.size + _CRC.size
    if len(data) < whole or bytes(data[:8]) != magic:
        raise FormatError(f"no {what}")
    body = bytes(data[: layout.size])
    if _CRC.pack(zlib.crc32(body)) != bytes(data[layout.size : whole]):
        raise FormatError(f"the {what} fails its checksum")
    return layout.unpack(body)[1:]


def pack_superblock(block: Superblock) -> bytes:
    """Return the head and empty slots."""
    fields = (_MAGIC, VERSION, block.slots, block.number, block.target_bytes)
    return _append_checksum(_SUPERBLOCK.pack(*fields)).ljust(block.records_offset, b"\0")


def parse_superblock(head: Buffer) -> Superblock:
    version, slots, number, target = _verify_checksum(head, _SUPERBLOCK, _MAGIC, "superblock")
    if version != VERSION or not 0 < slots <= MAX_SLOTS:
        raise FormatError(f"unsupported superblock of version {version} with {slots} slots")
    return Superblock(number, slots, target)


def pack_seal(seal: Seal, number: int) -> bytes:
    fields = (seal.toc_offset, seal.toc_length, seal.toc_crc, seal.records, number)
    return _append_checksum(_SEAL.pack(_SEAL_MAGIC, *fields))


def parse_seal(head: Buffer, number: int) -> Seal:
    data = memoryview(head)[SEAL_OFFSET:]
    offset, length, crc, records, sealed = _verify_checksum(data, _SEAL, _SEAL_MAGIC, "seal")
    if sealed != number:
        raise FormatError(f"seal of another segment ({sealed})")
    return Seal(offset, length, crc, records)


def slot_offset(slot: int) -> int:
    return HEAD_BYTES + slot * SLOT_BYTES


def pack_slot(number: int, slot: int, ends_ms: int, crc: int) -> bytes:
    return _SLOT.pack(ends_ms, crc, _slot_check(number, slot, ends_ms, crc))


def parse_slot(data: Buffer, number: int, slot: int) -> tuple[int, int] | None:
    """Return (expiry, CRC of the record's header), None if empty."""
    ends_ms, crc, check = _SLOT.unpack(data)
    if ends_ms <= 0 or check != _slot_check(number, slot, ends_ms, crc):
        return None
    return ends_ms, crc


def _slot_check(number: int, slot: int, ends_ms: int, crc: int) -> int:
    return zlib.crc32(_SLOT_PLACE.pack(number, slot, ends_ms, crc))


def value_crc(views: Iterable[Buffer]) -> int:
    crc = 0
    for view in views:
        crc = zlib.crc32(view, crc)
    return crc


def record_bytes(key: bytes, length: int) -> int:
    return RECORD_BYTES + len(key) + length


def pack_record(number: int, slot: int, key: bytes, length: int, crc: int) -> tuple[bytes, int]:
    fields = _RECORD.pack(_RECORD_MAGIC, len(key), slot, number, length, crc)
    own = zlib.crc32(key, zlib.crc32(fields))
    return fields + _CRC.pack(own) + key, own


def key_length(header: Buffer) -> int:
    """Return the key length from a fixed header; raise FormatError if invalid."""
    if len(header) < RECORD_BYTES or bytes(header[:4]) != _RECORD_MAGIC:
        raise FormatError("no record")
    length = int(_RECORD.unpack_from(header)[1])
    if length > MAX_KEY_BYTES:
        raise FormatError(f"invalid key length {length}")
    return length


def parse_record(header: Buffer, number: int, offset: int) -> tuple[Record, int]:
    size = key_length(header)
    _, _, slot, owner, length, crc = _RECORD.unpack_from(header)
    key = bytes(header[RECORD_BYTES : RECORD_BYTES + size])
    own = _CRC.unpack_from(header, _RECORD.size)[0]
    if owner != number or len(key) != size:
        raise FormatError(f"record of another segment ({owner}), or truncated")
    if own != zlib.crc32(key, zlib.crc32(bytes(header[: _RECORD.size]))):
        raise FormatError("the record's header fails its checksum")
    return Record(slot, offset, key, length, own), crc


def pack_toc(records: Iterable[Record]) -> bytes:
    """Pack one entry per slot, in order."""
    parts: list[bytes] = []
    for record in records:
        parts.append(_TOC.pack(record.offset, record.length, len(record.key), record.crc))
        parts.append(record.key)
    return b"".join(parts)


def parse_toc(data: bytes, seal: Seal) -> Iterator[Record]:
    if len(data) != seal.toc_length or zlib.crc32(data) != seal.toc_crc:
        raise FormatError("the table of contents fails its checksum")
    place = 0
    for slot in range(seal.records):
        offset, length, key_bytes, crc = _TOC.unpack_from(data, place)
        place += TOC_BYTES
        yield Record(slot, offset, data[place : place + key_bytes], length, crc)
        place += key_bytes
