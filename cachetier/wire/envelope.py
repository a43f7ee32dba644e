"""Header of every L2 value, which lets readers verify the bytes.

    magic "EMB1" | version | seal | reserved | body length | sum | SHA-256 of key | more of the sum

64 bytes, big endian. Readers compare every field against its expected value; the key digest detects
values stored or returned under another key.

`seal` selects the checksum: 0 is CRC-32 (4 bytes, zero padded), 1 is BLAKE3 (first 16 bytes).
CRC-32 is always available and as fast as zlib. vLLM images contain BLAKE3, which is collision
resistant. Writers measure both once (`fastest_seal`); readers accept either and report a missing
BLAKE3.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import struct
import time
import zlib
from enum import IntEnum
from typing import Any

blake3: Any = None  # guaranteed in vLLM images only
with contextlib.suppress(ImportError):
    from blake3 import blake3 as _blake3

    blake3 = _blake3

MAGIC = b"EMB1"
VERSION = 1
_LAYOUT = struct.Struct(">4sBBHQ4s32s12s")
HEADER_BYTES = _LAYOUT.size
assert HEADER_BYTES == 64
_NO_TAIL = bytes(12)
_TRIAL_BYTES = 1 << 20
_TRIALS = 3
# BLAKE3 is used only if clearly faster: any reader can verify CRC-32.
_MIN_SPEEDUP = 1.2

# Types accepted by zlib.
Buffer = bytes | bytearray | memoryview


class Seal(IntEnum):
    CRC32 = 0
    BLAKE3 = 1


def pack_header(key: bytes, body: Buffer, seal: Seal = Seal.CRC32) -> bytes:
    """Return the header for `body` stored under `key`."""
    length = memoryview(body).nbytes
    total = _checksum(seal, body)
    return _LAYOUT.pack(MAGIC, VERSION, seal, 0, length, total[:4], _digest(key), total[4:])


def expected_length(header: Buffer, key: bytes) -> int | None:
    """Return the body length, None if the header is invalid for `key`."""
    if len(header) != HEADER_BYTES:
        return None
    magic, version, seal, reserved, length, _, digest, tail = _LAYOUT.unpack(header)
    if (magic, version, reserved) != (MAGIC, VERSION, 0) or digest != _digest(key):
        return None
    if seal > Seal.BLAKE3 or (seal == Seal.CRC32 and tail != _NO_TAIL):
        return None
    return int(length)


def is_intact(header: Buffer, body: Buffer) -> bool | None:
    """Verify `body`; None if the header's seal is not supported here."""
    fields = _LAYOUT.unpack(header)
    if fields[2] == Seal.BLAKE3 and blake3 is None:
        return None
    return bool(_checksum(Seal(fields[2]), body) == fields[5] + fields[7])


@functools.cache
def fastest_seal() -> Seal:
    """Return the faster seal on this machine; measured once, in about 3 ms."""
    if blake3 is None:
        return Seal.CRC32
    trial = bytes(_TRIAL_BYTES)
    faster = _seconds(Seal.BLAKE3, trial) * _MIN_SPEEDUP < _seconds(Seal.CRC32, trial)
    return Seal.BLAKE3 if faster else Seal.CRC32


def _seconds(seal: Seal, body: bytes) -> float:
    best = float("inf")
    for _ in range(_TRIALS):
        started = time.perf_counter()
        _checksum(seal, body)
        best = min(best, time.perf_counter() - started)
    return best


def _checksum(seal: Seal, body: Buffer) -> bytes:
    """Return the 16-byte checksum."""
    if seal == Seal.CRC32:
        return zlib.crc32(body).to_bytes(4, "big") + _NO_TAIL
    return bytes(blake3(body).digest(16))


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


PREFIX = b"emb1:"
_NAMESPACE_MAX = 64


def block_key(namespace: str, group: int, block_hash: bytes) -> bytes:
    return b"%s%s:%d:%s" % (PREFIX, namespace.encode(), group, block_hash.hex().encode())


def parse_namespace(key: bytes | bytearray) -> str:
    """Return the namespace of a block key, "" for any other key (counted, never rejected)."""
    if not key.startswith(PREFIX):
        return ""
    end = key.find(b":", len(PREFIX), len(PREFIX) + _NAMESPACE_MAX + 1)
    name = bytes(key[len(PREFIX) : end]) if end > 0 else b""
    return name.decode() if name.isalnum() and name.isascii() else ""
