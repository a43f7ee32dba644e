"""Split an input in different ways: readers must be independent of the split."""

from __future__ import annotations

from collections.abc import Iterator

_EVERY_BYTE = 256  # longer inputs are split into this many parts


def splits(data: bytes, steer: bytes) -> Iterator[list[bytes]]:
    """Yield the bytes whole, in many small parts, and split as `steer` determines."""
    yield [data]
    step = 1 if len(data) <= _EVERY_BYTE else 1 + len(data) // _EVERY_BYTE
    yield [data[at : at + step] for at in range(0, len(data), step)]
    cuts = sorted({byte * len(data) // 256 for byte in steer})
    yield [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
