"""Envelope: a value is accepted only if every byte was stored under its key."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachetier.wire import envelope
from cachetier.wire.envelope import Seal

KEY = envelope.block_key("ab12", 0, b"\x01\xff")


def taken(header: bytes, body: bytes, key: bytes = KEY) -> bool:
    length = envelope.expected_length(header, key)
    return length == len(body) and envelope.is_intact(header, body) is True


@pytest.mark.parametrize("seal", Seal)
@given(body=st.binary(max_size=200))
def test_packed_value_is_unpacked(seal: Seal, body: bytes) -> None:
    assert taken(envelope.pack_header(KEY, body, seal), body)
    assert taken(envelope.pack_header(KEY, memoryview(bytearray(body)), seal), body)


@pytest.mark.parametrize("seal", Seal)
@given(body=st.binary(min_size=1, max_size=100), data=st.data())
def test_changed_byte_is_rejected(seal: Seal, body: bytes, data: st.DataObject) -> None:
    whole = bytearray(envelope.pack_header(KEY, body, seal) + body)
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    assert not taken(bytes(whole[: envelope.HEADER_BYTES]), bytes(whole[envelope.HEADER_BYTES :]))


def test_value_of_another_key_is_rejected() -> None:
    other = envelope.block_key("ab12", 0, b"\x01\xfe")
    assert not taken(envelope.pack_header(other, b"body"), b"body")


def test_short_or_long_value_is_rejected() -> None:
    header = envelope.pack_header(KEY, b"body")
    assert not taken(header, b"bod")
    assert not taken(header, b"body!")
    for length in range(envelope.HEADER_BYTES):
        assert envelope.expected_length(header[:length], KEY) is None


def test_layout_equals_the_documented_one() -> None:
    """Frozen: a change here needs a new version number."""
    assert envelope.pack_header(b"k", b"abc").hex() == (
        "454d423101000000"
        "0000000000000003"
        "352441c2"
        "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
        "000000000000000000000000"
    )


def test_second_seal_equals_the_documented_one() -> None:
    assert envelope.pack_header(b"k", b"abc", Seal.BLAKE3).hex() == (
        "454d4231010100000000000000000003"
        "6437b3ac"
        "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
        "38465133ffb63b75273a8db5"
    )


def test_reader_without_blake3_reports_it_and_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = envelope.pack_header(KEY, b"body", Seal.BLAKE3)
    monkeypatch.setattr(envelope, "blake3", None)
    assert envelope.expected_length(sealed, KEY) == 4, "the node which keeps it need not check it"
    assert envelope.is_intact(sealed, b"body") is None
    assert taken(envelope.pack_header(KEY, b"body"), b"body")


def test_unknown_seal_is_rejected() -> None:
    header = bytearray(envelope.pack_header(KEY, b"body"))
    header[5] = 2
    assert envelope.expected_length(header, KEY) is None


@pytest.mark.parametrize(("slow", "chosen"), [(Seal.CRC32, Seal.BLAKE3), (Seal.BLAKE3, Seal.CRC32)])
def test_writer_chooses_the_clearly_faster_seal(
    monkeypatch: pytest.MonkeyPatch, slow: Seal, chosen: Seal
) -> None:
    monkeypatch.setattr(envelope, "_seconds", lambda seal, body: 2.0 if seal is slow else 1.0)
    assert envelope.fastest_seal.__wrapped__() is chosen


def test_equal_speed_or_missing_blake3_gives_the_portable_seal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envelope, "_seconds", lambda seal, body: 1.0)
    assert envelope.fastest_seal.__wrapped__() is Seal.CRC32
    monkeypatch.setattr(envelope, "blake3", None)
    assert envelope.fastest_seal.__wrapped__() is Seal.CRC32


def test_first_seal_is_the_standard_crc() -> None:
    assert envelope.pack_header(KEY, b"abc")[16:20] == zlib.crc32(b"abc").to_bytes(4, "big")


def test_invalid_trailer_is_rejected() -> None:
    """A node reads the header only."""
    header = bytearray(envelope.pack_header(KEY, b"body"))
    header[-1] = 1
    assert envelope.expected_length(header, KEY) is None
