"""The header before every value in L2, by which a reader knows that the bytes are the right ones.

    magic "EMB1" | version | flags | reserved | body length | CRC-32 of body | SHA-256 of key

64 bytes, big endian, the tail reserved and zero. A reader knows every field but the checksum
before it looks, so each is compared and none is believed; the key's digest catches a value stored,
or answered, under another's name.
"""

from __future__ import annotations

import hashlib
import struct
import zlib

MAGIC = b"EMB1"
VERSION = 1
_LAYOUT = struct.Struct(">4sBBHQI32s12x")
HEADER_BYTES = _LAYOUT.size
assert HEADER_BYTES == 64

# What memoryview, bytes and bytearray share, for zlib's sake.
Buffer = bytes | bytearray | memoryview


def pack(key: bytes, body: Buffer) -> bytes:
    """The header for `body` stored under `key`."""
    length = memoryview(body).nbytes
    return _LAYOUT.pack(MAGIC, VERSION, 0, 0, length, zlib.crc32(body), _digest(key))


def expected_length(header: Buffer, key: bytes) -> int | None:
    """The body's length if `header` is one of ours for `key`, else None."""
    if len(header) != HEADER_BYTES or bytes(header[-12:]) != bytes(12):
        return None
    magic, version, flags, reserved, length, _, digest = _LAYOUT.unpack(header)
    if (magic, version, flags, reserved) != (MAGIC, VERSION, 0, 0) or digest != _digest(key):
        return None
    return int(length)


def is_intact(header: Buffer, body: Buffer) -> bool:
    """Whether `body` is, byte for byte, what was stored under this header."""
    return bool(zlib.crc32(body) == _LAYOUT.unpack(header)[5])


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
