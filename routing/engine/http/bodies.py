"""Limits on request bodies: buffered bytes, JSON values, upload duration, parse slices.

A small body is parsed at once. Others are scanned in slices of SLICE_S between which the event loop
runs, one body at a time. Parsing and freeing cannot be sliced, so JSON values are counted first.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from random import getrandbits
from time import perf_counter
from typing import Any, Final

import orjson
import xxhash

from routing.engine.errors import Refusal

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
SMALL_BYTES: Final = 16_384
# Ordinary long prompts are more text, not more objects.
MEDIUM_BYTES: Final = 262_144
MEDIUM_OBJECTS: Final = 1024
SLICE_S = 0.0005
_SCAN_BYTES: Final = 65_536
# Below this limit a sample has too few values; its margin covers bodies made to evade it.
_MIN_SAMPLED_VALUES: Final = 65_536
_SAMPLE_MARGIN: Final = 4
# A sample is one window of each cell.
_CELL_BYTES: Final = 2048
_WINDOW_BYTES: Final = 64
_SAMPLED_SHARE: Final = _CELL_BYTES // _WINDOW_BYTES
_SECRET: Final = getrandbits(64)  # no caller can foresee the windows
_MIN_BYTES_S: Final = 1000
_SMALL_PIECE_BYTES: Final = 4096
# Parser cost in plain values: objects, arrays and keys are expensive.
_WEIGHTS: Final = {b",": 1, b":": 4, b"[": 4, b"{": 4}
_PLAIN: Final = bytes(set(range(256)) - set(b"".join(_WEIGHTS)))
# Share of the budget reserved for requests up to this size, so that large bodies cannot starve
# them.
_RESERVED_SHARE: Final = 0.25
_RESERVED_BYTES: Final = 65_536


def is_small(body: bytes) -> bool:
    """Return True if any body of this size is parsed within a few milliseconds."""
    size = len(body)
    if size <= SMALL_BYTES:
        return True
    # Counting all would cost a tenth of the request.
    sample = _sample(body, 0, size)
    return size <= MEDIUM_BYTES and sample.count(b"{") * _SAMPLED_SHARE <= MEDIUM_OBJECTS


def _sample(body: bytes, at: int, end: int) -> bytes:
    """Return a window of each cell, the same for the same body."""
    place = xxhash.xxh3_64_intdigest(body[at : at + _CELL_BYTES], _SECRET ^ at)
    windows = []
    for cell in range(at, end, _CELL_BYTES):
        # Knuth's multiplier, The Art of Computer Programming 2, 3.3.4
        place = (place * 6_364_136_223_846_793_005 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        start = cell + (place >> 33) % (_CELL_BYTES - _WINDOW_BYTES)
        windows.append(body[start : start + _WINDOW_BYTES])
    return b"".join(windows)


class ReadPace:
    """Yield to the event loop whenever a time slice is used up."""

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_S

    async def pause(self) -> None:
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SLICE_S


class UploadDeadline:
    """Deadline of an arriving body: at least 1000 bytes/s on average."""

    __slots__ = ("_bytes", "_since")

    def begin(self, timeout_s: float) -> float:
        """Start measuring; time before this was the router's own backpressure."""
        self._since = perf_counter()
        self._bytes = 0
        return self._since + timeout_s

    def came(self, size: int, timeout_s: float) -> float:
        now = perf_counter()
        if self._bytes > timeout_s * _MIN_BYTES_S and now > self._since + timeout_s:
            self._since = now  # earlier speed is no credit
            self._bytes = 0
        self._bytes += size
        return min(now, self._since + self._bytes / _MIN_BYTES_S) + timeout_s


def append_pieces(held: list[bytes | bytearray], pieces: Sequence[bytes | bytearray]) -> None:
    """Append to `held`, joining small pieces to limit per-object overhead."""
    for piece in pieces:
        if not held or len(piece) >= _SMALL_PIECE_BYTES:
            held.append(piece)
        elif type(held[-1]) is bytearray:
            held[-1] += piece
        else:
            held.append(bytearray(piece))


class BufferBudget:
    """Request bytes buffered for all clients."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def hold(self, before: int, size: int) -> bool:
        """Replace `before` bytes of a client by `size`; return False without change if over the
        limit.
        """
        used = self.used + size - before
        if used <= self.limit >> 1:
            self.used = used
            return True
        limit = self.limit if size <= _RESERVED_BYTES else self.limit * (1 - _RESERVED_SHARE)
        if used > limit and size > before:
            return False
        self.used = used
        return True

    def full(self) -> Refusal:
        text = (
            f"This router buffers {self.used} bytes of requests; at most {self.limit} are allowed "
            "(limits.buffer_bytes), and large requests may use three quarters of that."
        )
        return Refusal("buffer_full", text)


def parse_body(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object of the body, or None."""
    try:
        data = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return None
    return data if type(data) is dict else None


def check_json(body: bytes) -> None:
    """Raise Refusal with the place of the first error unless the body is JSON in UTF-8."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as error:
        text = f"The body is not valid JSON: {error.msg}: line {error.lineno} column {error.colno}"
        place = error.pos
        if body.startswith((b"\xff\xfe", b"\xfe\xff")) or body[:4].count(0) >= 2:
            text = "The body must be JSON in UTF-8; it begins like UTF-16 or UTF-32"
        else:
            try:
                body.decode()
            except UnicodeDecodeError as wrong:
                text, place = "The body is not valid UTF-8", wrong.start
        raise Refusal("invalid_json", f"{text} (byte {place}).") from None


async def check_large_json(body: bytes, most_values: int, pace: ReadPace) -> None:
    """Like `check_json`, for any size. Raise Refusal for more than `most_values` too."""
    await _check_values(body, most_values, pace)
    check_json(body)


async def parse_large(body: bytes, most_values: int, pace: ReadPace) -> dict[str, Any] | None:
    """Parse a body of any size. Raise Refusal for more than `most_values`."""
    if not body[:_RESERVED_BYTES].lstrip().startswith(b"{"):
        return None
    await _check_values(body, most_values, pace)
    collecting = gc.isenabled()
    gc.disable()  # a collection would only walk the parser's live objects
    try:
        return parse_body(body)
    finally:
        if collecting:
            gc.enable()


def _count_values(text: bytes) -> int:
    marks = text.translate(None, _PLAIN)  # one pass over the text instead of four
    return sum(marks.count(mark) * weight for mark, weight in _WEIGHTS.items())


async def _are_few(body: bytes, most: int, pace: ReadPace) -> bool:
    """Return True if by a sample the body has far fewer than `most` values, as nearly all have."""
    marks = 0
    for index in range(0, len(body), _SCAN_BYTES):  # a sample of each part, each drawn anew
        sample = _sample(body, index, min(index + _SCAN_BYTES, len(body)))
        marks += _count_values(sample) * _SAMPLED_SHARE
        await pace.pause()
    return marks * _SAMPLE_MARGIN <= most


async def _check_values(body: bytes, most: int, pace: ReadPace) -> None:
    """Raise Refusal if the body has more than `most` JSON values, without building them."""
    if most >= _MIN_SAMPLED_VALUES and await _are_few(body, most, pace):
        return
    marks = 0  # includes marks inside strings
    for index in range(0, len(body), _SCAN_BYTES):
        marks += _count_values(body[index : index + _SCAN_BYTES])
        await pace.pause()
    if marks <= most:
        return
    values, in_text, rest = 0, 0, b""
    for index in range(0, len(body), _SCAN_BYTES):
        part = rest + body[index : index + _SCAN_BYTES]
        cut = len(part) - (len(part) - len(part.rstrip(b"\\"))) % 2  # do not cut inside an escape
        part, rest = part[:cut], part[cut:]
        pieces = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[in_text::2])
        in_text ^= (len(pieces) - 1) & 1
        values += _count_values(outside)
        if values > most:
            text = (
                f"The request has more than {most} JSON values (a key, object or array counts as "
                "4), which is the most this router accepts (limits.json_values)."
            )
            raise Refusal("body_too_complex", text)
        await pace.pause()
