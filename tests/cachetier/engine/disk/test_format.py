"""Disk format: packed data is read back, and changed bits are detected."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachetier.engine.disk import format as layout
from cachetier.engine.disk.format import FormatError, Record, Seal, Superblock

keys = st.binary(min_size=1, max_size=200)
bits = st.integers(0, 10**6)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


@given(number=st.integers(1, 2**63), slots=st.integers(1, 64), target=st.integers(0, 2**40))
def test_superblock(number: int, slots: int, target: int) -> None:
    block = Superblock(number, slots, target)
    data = layout.pack_superblock(block)
    assert len(data) == block.records_offset
    assert layout.parse_superblock(data) == block
    for bit in range(8 * 36):
        with pytest.raises(FormatError):
            layout.parse_superblock(flipped(data[:36], bit))


def test_seal_is_valid_only_for_its_segment() -> None:
    seal = Seal(5000, 70, 99, 3)
    head = bytes(layout.SEAL_OFFSET) + layout.pack_seal(seal, 7)
    assert layout.parse_seal(head, 7) == seal
    with pytest.raises(FormatError):
        layout.parse_seal(head, 8)
    for bit in range(8 * layout.SEAL_OFFSET, 8 * len(head)):
        with pytest.raises(FormatError):
            layout.parse_seal(flipped(head, bit), 7)


@given(
    number=st.integers(1, 2**63),
    slot=st.integers(0, 65535),
    ends_ms=st.integers(1, layout.NO_EXPIRY),
    crc=st.integers(0, 2**32 - 1),
)
def test_slot(number: int, slot: int, ends_ms: int, crc: int) -> None:
    data = layout.pack_slot(number, slot, ends_ms, crc)
    assert layout.parse_slot(data, number, slot) == (ends_ms, crc)
    assert layout.parse_slot(data, number, (slot + 1) % 65536) is None
    assert layout.parse_slot(data, number ^ 1, slot) is None
    for bit in range(8 * layout.SLOT_BYTES):
        assert layout.parse_slot(flipped(data, bit), number, slot) is None


@given(number=st.integers(1, 2**63), slot=st.integers(0, 65535))
def test_wiped_slot_with_a_flipped_bit_is_no_record(number: int, slot: int) -> None:
    assert layout.parse_slot(layout.EMPTY_SLOT, number, slot) is None
    for bit in range(8 * layout.SLOT_BYTES):
        assert layout.parse_slot(flipped(layout.EMPTY_SLOT, bit), number, slot) is None


@settings(max_examples=50)
@given(key=keys, value=st.binary(max_size=300), slot=st.integers(0, 65535))
def test_record_header(key: bytes, value: bytes, slot: int) -> None:
    crc = layout.value_crc([value])
    header, own = layout.pack_record(9, slot, key, len(value), crc)
    record = Record(slot, 4096, key, len(value), own)
    assert layout.parse_record(header + value, 9, 4096) == (record, crc)
    assert record.end - record.offset == layout.record_bytes(key, len(value))
    with pytest.raises(FormatError):
        layout.parse_record(header, 8, 4096)
    for bit in range(8 * len(header)):
        with pytest.raises(FormatError):
            layout.parse_record(flipped(header, bit), 9, 4096)


@given(st.lists(st.tuples(keys, st.integers(0, 2**40)), max_size=8), bits)
def test_table_of_contents(entries: list[tuple[bytes, int]], bit: int) -> None:
    records = [Record(slot, 11 * slot, key, size, slot) for slot, (key, size) in enumerate(entries)]
    toc = layout.pack_toc(records)
    seal = Seal(1, len(toc), zlib.crc32(toc), len(records))
    assert list(layout.parse_toc(toc, seal)) == records
    if toc:
        with pytest.raises(FormatError):
            list(layout.parse_toc(flipped(toc, bit), seal))
