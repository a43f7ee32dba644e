"""A reader takes a value only if every byte of it is what was stored under that very key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachetier.wire import envelope, keys

KEY = keys.block_key("ab12", 0, b"\x01\xff")


def taken(header: bytes, body: bytes, key: bytes = KEY) -> bool:
    return envelope.expected_length(header, key) == len(body) and envelope.is_intact(header, body)


@given(st.binary(max_size=200))
def test_what_was_packed_is_taken(body: bytes) -> None:
    assert taken(envelope.pack(KEY, body), body)
    assert taken(envelope.pack(KEY, memoryview(body)), body)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_no_single_changed_byte_is_taken(body: bytes, data: st.DataObject) -> None:
    whole = bytearray(envelope.pack(KEY, body) + body)
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    assert not taken(bytes(whole[: envelope.HEADER_BYTES]), bytes(whole[envelope.HEADER_BYTES :]))


def test_another_keys_value_is_not_taken() -> None:
    other = keys.block_key("ab12", 0, b"\x01\xfe")
    assert not taken(envelope.pack(other, b"body"), b"body")


def test_short_or_long_is_not_taken() -> None:
    header = envelope.pack(KEY, b"body")
    assert not taken(header, b"bod")
    assert not taken(header, b"body!")
    for length in range(envelope.HEADER_BYTES):
        assert envelope.expected_length(header[:length], KEY) is None


def test_the_layout_is_what_other_programs_were_told() -> None:
    """Frozen: a change here needs a new version number."""
    assert envelope.pack(b"k", b"abc").hex() == (
        "454d423101000000"
        "0000000000000003"
        "352441c2"
        "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
        "000000000000000000000000"
    )
