"""Bounds on request bodies: how many bytes are buffered, how much JSON is read, how long at a time.

A small body is read at once. Any other is read in slices of SLICE_S between which the event loop
serves everybody else, one such body at a time. Two steps cannot be sliced: the JSON parser, so the
values of a body are counted before it is parsed; and freeing what it made.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from random import getrandbits
from time import perf_counter
from typing import Any

import orjson

from routing.engine.errors import Refusal

SMALL_BYTES = 16_384
# Ordinary long prompts: more text, not more objects.
MEDIUM_BYTES = 262_144
MEDIUM_OBJECTS = 1024
SLICE_S = 0.0005
_SCAN_BYTES = 65_536
_SLOWEST_BYTES_S = 1000
_SMALL_PIECE_BYTES = 4096
# What each of these makes the parser do, in plain values: objects, arrays and keys are costly.
_WEIGHTS = {b",": 1, b":": 4, b"[": 4, b"{": 4}
# Of the budget, what only requests up to this size may use: large bodies cannot shut them out.
_RESERVED_SHARE = 0.25
_RESERVED_BYTES = 65_536


def is_small(body: bytes) -> bool:
    """Whether the body is read within a few milliseconds, whatever is in it."""
    size = len(body)
    if size <= SMALL_BYTES:
        return True
    # A sample: to count all of them would cost a tenth of what the request costs. Nobody knows the
    # stride beforehand, so no pattern can hide from it.
    stride = 33 + getrandbits(5)
    return size <= MEDIUM_BYTES and body[::stride].count(b"{") * stride <= MEDIUM_OBJECTS


class ReadPace:
    """Yields to the event loop whenever a slice of time is used up."""

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_S

    async def pause(self) -> None:
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SLICE_S


class Arrival:
    """The deadline of a body which is arriving: slower than 1000 bytes/s is too slow, however
    steadily it drips."""

    __slots__ = ("_bytes", "_since")

    def begin(self, timeout_s: float) -> float:
        """Measure from now on; before this the client was not asked to send, or was held up."""
        self._since = perf_counter()
        self._bytes = 0
        return self._since + timeout_s

    def came(self, size: int, timeout_s: float) -> float:
        now = perf_counter()
        if self._bytes > timeout_s * _SLOWEST_BYTES_S and now > self._since + timeout_s:
            self._since = now  # what came fast once is no credit for dripping later
            self._bytes = 0
        self._bytes += size
        return min(now, self._since + self._bytes / _SLOWEST_BYTES_S) + timeout_s


def collect(held: list[bytes | bytearray], pieces: Sequence[bytes | bytearray]) -> None:
    """Append to `held`; small pieces together: each alone would take many times its size."""
    for piece in pieces:
        if not held or len(piece) >= _SMALL_PIECE_BYTES:
            held.append(piece)
        elif type(held[-1]) is bytearray:
            held[-1] += piece
        else:
            held.append(bytearray(piece))


class Budget:
    """Request bytes buffered for all clients together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def hold(self, before: int, size: int) -> bool:
        """Count `size` bytes for a client instead of `before`; False: too many, nothing changes."""
        used = self.used + size - before
        if used <= self.limit >> 1:  # nearly always
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


def parse(body: bytes) -> dict[str, Any] | None:
    """The JSON object in the body; None if there is none."""
    try:
        data = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return None
    return data if type(data) is dict else None


async def parse_large(body: bytes, most_values: int, pace: ReadPace) -> dict[str, Any] | None:
    """As `parse`, for a body of any size. Raises Refusal for more than `most_values`."""
    if not body[:_RESERVED_BYTES].lstrip().startswith(b"{"):
        return None  # a form or a file
    await _check_values(body, most_values, pace)
    collecting = gc.isenabled()
    gc.disable()  # the parser makes no garbage: a collection would only walk what it has made
    try:
        return parse(body)
    finally:
        if collecting:
            gc.enable()


def _weigh(text: bytes) -> int:
    return sum(text.count(mark) * weight for mark, weight in _WEIGHTS.items())


async def _check_values(body: bytes, most: int, pace: ReadPace) -> None:
    """Raise Refusal if the body has more JSON values than `most`, without making any of them."""
    marks = 0  # also those in texts
    for at in range(0, len(body), _SCAN_BYTES):
        marks += _weigh(body[at : at + _SCAN_BYTES])
        await pace.pause()
    if marks <= most:
        return
    values, in_text, rest = 0, 0, b""
    for at in range(0, len(body), _SCAN_BYTES):
        part = rest + body[at : at + _SCAN_BYTES]
        cut = len(part) - (len(part) - len(part.rstrip(b"\\"))) % 2  # keeps an escape whole
        part, rest = part[:cut], part[cut:]
        pieces = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[in_text::2])
        in_text ^= (len(pieces) - 1) & 1
        values += _weigh(outside)
        if values > most:
            text = (
                f"The request has more than {most} JSON values (a key, object or array counts as "
                "4), which is the most this router accepts (limits.json_values)."
            )
            raise Refusal("body_too_complex", text)
        await pace.pause()
