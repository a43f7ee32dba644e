"""Self-describing values: any byte of another key, version or offset is detected.

A value is a head (key number, version, length) and a slice of one long random text, starting at a
digest of all three. Comparing is one memcmp, building one copy.
"""

from __future__ import annotations

import hashlib
import random
import struct

MAX_BYTES = 5 * 1024 * 1024
_HEAD = struct.Struct("<4sQQQ")
_MAGIC = b"soak"
_TEXT = random.Random(20).randbytes(3 * MAX_BYTES)
_VIEW = memoryview(_TEXT)


def key_of(number: int) -> bytes:
    """Return a key that is not a block key: a node checks block envelopes and would mask errors."""
    return b"soak:%d:%d" % (number % 4, number)


def make(number: int, version: int, length: int) -> bytes:
    """`length` is at least that of the head."""
    length = max(length, _HEAD.size)
    return _HEAD.pack(_MAGIC, number, version, length) + _body(number, version, length)


def _body(number: int, version: int, length: int) -> memoryview:
    digest = hashlib.blake2b(b"%d %d %d" % (number, version, length), digest_size=8).digest()
    first = int.from_bytes(digest, "little") % (len(_TEXT) - MAX_BYTES)
    return _VIEW[first : first + length - _HEAD.size]


def version_of(number: int, value: bytes | memoryview) -> int:
    """Return the version of key `number` after comparing all bytes; raise ValueError if invalid."""
    if len(value) < _HEAD.size:
        raise ValueError(f"{len(value)} bytes are no value")
    magic, there, version, length = _HEAD.unpack_from(value)
    if magic != _MAGIC:
        raise ValueError(f"not a head: {bytes(value[: _HEAD.size]).hex()}")
    if there != number:
        raise ValueError(f"the value of key {there}")
    if length != len(value):
        raise ValueError(f"{len(value)} bytes of {length}")
    if memoryview(value)[_HEAD.size :] != _body(number, version, length):
        raise ValueError("its bytes are not what was written")
    return int(version)


def part_is_right(whole: bytes, first: int, last: int, part: bytes) -> bool:
    """GETRANGE semantics: both ends included, negative ones from the end."""
    first = max(first + len(whole), 0) if first < 0 else first
    last = max(last + len(whole), 0) if last < 0 else last
    return part == whole[first : last + 1]
