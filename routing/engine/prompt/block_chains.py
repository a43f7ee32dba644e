"""Chained hashes of a prompt's blocks, with a cache for shared prefixes.

Groups of 32 blocks are found by one hash, at a tenth of the cost of hashing each block. A full
cache drops its older half.
"""

from __future__ import annotations

from array import array

import xxhash

from routing.engine.http.bodies import ReadPace

GROUP_BLOCKS = 32
_SLICE = 8
CACHED_GROUPS = 16_384  # groups, about 450 bytes each


class BlockHasher:
    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._new: dict[int, array[int]] = {}
        self._old: dict[int, array[int]] = {}

    def of(self, data: bytes, seed: int) -> array[int]:
        size = self._block_bytes * GROUP_BLOCKS
        grouped = len(data) - len(data) % size
        if not grouped:
            return array("Q", self._each(data, 0, len(data), seed))
        out = array("Q")
        view = memoryview(data)
        digest = xxhash.xxh3_64_intdigest
        new = self._new
        for start in range(0, grouped, size):
            name = digest(view[start : start + size], seed)
            hashes = new.get(name)
            if hashes is None:
                hashes = self._group(data, start, seed, name)
            out.extend(hashes)
            seed = hashes[-1]
        out.fromlist(self._each(data, grouped, len(data), seed))
        return out

    async def of_large(self, data: bytes, seed: int, pace: ReadPace) -> array[int]:
        """Like `of`, in slices."""
        size = self._block_bytes * GROUP_BLOCKS * _SLICE
        out = array("Q")
        for start in range(0, len(data), size):
            hashes = self.of(data[start : start + size], seed)
            if hashes:
                out.extend(hashes)
                seed = hashes[-1]
            await pace.pause()
        return out

    def _each(self, data: bytes, start: int, end: int, seed: int) -> list[int]:
        block_bytes = self._block_bytes
        digest = xxhash.xxh3_64_intdigest
        out: list[int] = []
        for at in range(start, end - block_bytes + 1, block_bytes):
            seed = digest(data[at : at + block_bytes], seed)
            out.append(seed)
        return out

    def _group(self, data: bytes, start: int, seed: int, name: int) -> array[int]:
        """Return a group's hashes, cached."""
        hashes = self._old.get(name)
        if hashes is None:
            end = start + self._block_bytes * GROUP_BLOCKS
            hashes = array("Q", self._each(data, start, end, seed))
        if len(self._new) >= CACHED_GROUPS // 2:
            self._old = self._new.copy()
            self._new.clear()  # cleared in place: `of` holds a reference
        self._new[name] = hashes
        return hashes
