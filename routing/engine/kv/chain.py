"""Chained block hashes, computed from token ids alone and independent of engine hashes.

A hash is xxh3_64 of the block's ids as packed uint32, seeded with the previous hash; the first is
seeded with `root`, which is keyed because 64 bits do not resist deliberate collisions.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

import xxhash

TOKEN_BYTES = 4

_digest = xxhash.xxh3_64_intdigest


def pack_tokens(ids: Iterable[int]) -> bytes:
    """Pack ids as uint32. Raise OverflowError for an invalid id."""
    return array("I", ids).tobytes()


def chain_root(secret: bytes, model: str, lora: str = "", salt: str = "") -> int:
    """Return the seed of a model, adapter and salt."""
    hashed = hashlib.blake2b(digest_size=8, key=secret[:64])
    for part in (model, lora, salt):
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big"))
        hashed.update(data)
    return int.from_bytes(hashed.digest(), "big")


def extend_chain(parent: int, data: bytes | memoryview, block_tokens: int) -> list[int]:
    """Return a hash for each whole block of `data` (packed ids), chained on `parent`."""
    block_bytes = block_tokens * TOKEN_BYTES
    digest = _digest
    out: list[int] = []
    for start in range(0, len(data) - block_bytes + 1, block_bytes):
        parent = digest(data[start : start + block_bytes], parent)
        out.append(parent)
    return out
