"""One input, arriving in different parts: whoever reads it must understand the same."""

from __future__ import annotations

from collections.abc import Iterator

_EVERY_BYTE = 256  # longer inputs are cut into as many parts


def splits(data: bytes, steer: bytes) -> Iterator[list[bytes]]:
    """The same bytes in other parts: whole, in many small ones, and cut where `steer` says."""
    yield [data]
    step = 1 if len(data) <= _EVERY_BYTE else 1 + len(data) // _EVERY_BYTE
    yield [data[at : at + step] for at in range(0, len(data), step)]
    cuts = sorted({byte * len(data) // 256 for byte in steer})
    yield [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
