"""The router's own name for a block of tokens and everything before it.

Promises that two prompts share a block's hash exactly when model, adapter and cache salt are the
same and so are all tokens up to the block's end. Made from token ids alone, so that it is the same
for what a request will ask (routing.engine.tokens) and for what a worker says it holds
(routing.engine.kv), whatever names the engine gives its blocks. Must not know either.

A hash is xxh3_64 of the block's ids as packed unsigned 32-bit integers, seeded with the hash
before it; the first block is seeded with `root`. 64 bits are no proof against somebody who looks
for collisions: `root` is keyed, so that nobody outside can compute one.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

import xxhash

TOKEN_BYTES = 4  # an id is packed as an unsigned 32-bit integer

_digest = xxhash.xxh3_64_intdigest


def pack(ids: Iterable[int]) -> bytes:
    """Raises OverflowError for what is no token id."""
    return array("I", ids).tobytes()


def root(secret: bytes, model: str, lora: str = "", salt: str = "") -> int:
    """Where the chains of one model, adapter and cache salt begin."""
    hashed = hashlib.blake2b(digest_size=8, key=secret[:64])
    for part in (model, lora, salt):
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big"))
        hashed.update(data)
    return int.from_bytes(hashed.digest(), "big")


def extend(parent: int, data: bytes | memoryview, block_tokens: int) -> list[int]:
    """A hash for each whole block of `data` (packed ids), chained on `parent`."""
    block_bytes = block_tokens * TOKEN_BYTES
    digest = _digest
    out: list[int] = []
    for start in range(0, len(data) - block_bytes + 1, block_bytes):
        parent = digest(data[start : start + block_bytes], parent)
        out.append(parent)
    return out
