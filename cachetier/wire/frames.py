"""Server-side RESP request parser with bounded memory. Sans-I/O.

The owner receives into `get_buffer()` or `get_buffers()`, reports the count with `received()` and
takes commands from `next_request()` until None.

Bytes land in one scratch buffer, from which short items are cut. For a long bulk string the owner
is called for a `Landing` with the preceding words; further bytes are received directly into it and
never copied. If the owner rejects it, or the value is too long, the bytes are discarded and the
argument is a `RefusedFrame` with the reason: the connection stays usable. Protocol violations raise
ProtocolError; the connection must then be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

# Fuzzers shrink the first five, so that short inputs meet them: no constants of compiled code.
SCRATCH_BYTES = 64 * 1024
# Minimum length of a bulk string with its own landing; shorter ones fit the scratch buffer.
DIRECT_BYTES = 16 * 1024
# Read size after a long value: enough for the following words, but little of the next value, since
# bytes in the scratch buffer must be copied.
_FRAMING_BYTES = 2048
# Buffers per system call, below IOV_MAX (1024).
_MAX_TARGETS = 512
# Object overhead of a word and its list entry.
_WORD_BYTES = 64
# No client sends this many empty requests in a row; each costs time.
_MAX_EMPTY: Final = 1024
# Inline words that start an HTTP request line and are not commands.
_HTTP_VERBS: Final = frozenset(b"CONNECT DELETE HEAD OPTIONS PATCH POST PRI PUT TRACE".split())
# "*" or "$", up to 20 digits, CR LF.
_MAX_LENGTH_LINE: Final = 24
_ASTERISK: Final = 0x2A
_DOLLAR: Final = 0x24
# Redis' bulk string limit; a longer one is a broken client.
MAX_BULK_BYTES: Final = 512 * 1024 * 1024


class ProtocolError(Exception):
    """Peer does not speak RESP; the text is sent as the last reply."""


class HttpError(ProtocolError):
    """HTTP request instead of RESP, for example sent by a browser."""

    def __init__(self) -> None:
        super().__init__("this port speaks RESP (Redis), not HTTP")


@dataclass(frozen=True, slots=True)
class RefusedFrame:
    """Placeholder for an argument that was discarded."""

    reason: str  # "too_large", or the owner's reason
    length: int
    detail: str = ""


class Landing(Protocol):
    """Destination of a long bulk string, then its argument."""

    @property
    def views(self) -> Sequence[memoryview]:
        """Return writable, non-empty views of `length` bytes in total."""
        ...

    @property
    def length(self) -> int: ...


class Buffer:
    __slots__ = ("data", "length", "views")

    def __init__(self, length: int) -> None:
        self.data = bytearray(length)
        self.length = length
        self.views = [memoryview(self.data)]


Argument = bytes | Landing | RefusedFrame
Request = list[Argument]
# Called with the words before a long bulk string, and its length.
LandingFactory = Callable[[Request, int], Landing | RefusedFrame]


@dataclass(slots=True)
class Limits:
    """Request limits of one connection; stricter before login."""

    max_args: int = 1024 * 1024
    # Total bytes of the short words of a request, including object overhead, so that many small
    # words cannot use more memory than one long word.
    max_short_bytes: int = 4 * 1024 * 1024
    max_value_bytes: int = MAX_BULK_BYTES
    max_bulk_bytes: int = MAX_BULK_BYTES
    max_request_bytes: int = MAX_BULK_BYTES


def limits_before_login() -> Limits:
    """Return Redis' limits before login, without landings, whose reservation evicts values."""
    return Limits(
        max_args=10,
        max_value_bytes=DIRECT_BYTES - 1,
        max_bulk_bytes=DIRECT_BYTES - 1,
        max_request_bytes=4 * DIRECT_BYTES,
    )


class RequestParser:
    """Parser; `land` returns a landing for a long bulk string or rejects it."""

    def __init__(self, limits: Limits, land: LandingFactory) -> None:
        self.limits = limits
        self._land = land
        self._scratch = bytearray(SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self._start = 0
        self._end = 0
        self._args: Request = []
        self._missing_args = 0
        self._empty = 0  # consecutive empty requests
        self._request_bytes = 0
        self._short_bytes = 0
        self._bulk = -1  # length of the current bulk, -1 between bulks
        self._landing: Landing | None = None
        self._targets: list[memoryview] = []  # unfilled views of the landing
        self.missing = 0  # bytes missing from the current long value; 0 between values
        self._window = SCRATCH_BYTES  # read size
        self._had_long = False
        self._skip = 0  # bytes of a rejected bulk left to discard
        self._refusal: RefusedFrame | None = None

    @property
    def is_idle(self) -> bool:
        return self._start == self._end and not self._missing_args

    def get_buffer(self) -> memoryview:
        return self._targets[0] if self.missing else self._scratch_view()

    def get_buffers(self) -> list[memoryview]:
        """Return buffers for a scatter receive: the rest of the value, then the scratch."""
        if not self.missing:
            return [self._scratch_view()]
        return [*self._targets[:_MAX_TARGETS], *self._after()]

    def _after(self) -> list[memoryview]:
        if len(self._targets) > _MAX_TARGETS:
            return []
        self._start = self._end = 0  # all bytes are in the landing
        return [self._view[:_FRAMING_BYTES]]

    def _scratch_view(self) -> memoryview:
        if self._start == self._end:
            self._start = self._end = 0
        elif SCRATCH_BYTES - self._end < DIRECT_BYTES:
            rest = self._end - self._start
            self._scratch[:rest] = self._scratch[self._start : self._end]
            self._start, self._end = 0, rest
        return self._view[self._end : self._end + self._window]

    def received(self, count: int) -> None:
        if not self.missing:
            self._end += count
            return
        if count < self.missing:
            self.missing -= count
            self._fill(count)
            return
        if count > self.missing:
            self._start, self._end = 0, count - self.missing
        self.missing = 0
        self._targets = []

    def _fill(self, count: int) -> None:
        targets = self._targets
        done = 0
        while count >= len(targets[done]):
            count -= len(targets[done])
            done += 1
        del targets[:done]
        if count:
            targets[0] = targets[0][count:]

    def next_request(self) -> Request | None:
        """Return the next complete, non-empty command, None if more bytes are needed."""
        while True:
            if self._missing_args == 0:
                request = self._begin()
                if request is None:
                    return None
                self._empty = 0 if request or self._missing_args else self._empty + 1
                if request:
                    return request
                if self._empty > _MAX_EMPTY:
                    raise ProtocolError("too many empty requests")
                continue
            while self._missing_args:
                if self._bulk < 0:
                    self._take_short_words()
                    if not self._missing_args:
                        break
                argument = self._argument()
                if argument is None:
                    return None
                self._args.append(argument)
                self._missing_args -= 1
            request, self._args = self._args, []
            self._request_bytes = self._short_bytes = 0
            if not self._had_long:
                self._window = SCRATCH_BYTES
            self._had_long = False
            return request

    def _take_short_words(self) -> None:
        """Append the buffered short words up to one that is long, incomplete or invalid."""
        scratch, start, end = self._scratch, self._start, self._end
        room = min(
            self.limits.max_request_bytes - self._request_bytes,
            self.limits.max_short_bytes - self._short_bytes,
        )
        taken = count = 0
        while count < self._missing_args and start < end and scratch[start] == _DOLLAR:
            line_end = scratch.find(b"\r\n", start, min(end, start + _MAX_LENGTH_LINE))
            digits = scratch[start + 1 : line_end] if line_end > 0 else b""
            if not digits.isdigit():
                break
            length = int(digits)
            stop = line_end + 2 + length
            too_many = taken + length + _WORD_BYTES > room
            if length >= DIRECT_BYTES or too_many or scratch[stop : min(stop + 2, end)] != b"\r\n":
                break
            self._args.append(bytes(self._view[line_end + 2 : stop]))
            start = stop + 2
            taken += length + _WORD_BYTES
            count += 1
        self._start = start
        self._missing_args -= count
        self._short_bytes += taken
        self._request_bytes += taken - count * _WORD_BYTES

    def _begin(self) -> Request | None:
        """Return a complete inline command, [] to continue, None if more bytes are needed."""
        if self._start == self._end:
            return None
        if self._scratch[self._start] != _ASTERISK:
            return self._inline()
        count = self._length_line(b"*")
        if count is None:
            return None
        if count > self.limits.max_args:
            raise ProtocolError("invalid multibulk length")
        self._missing_args = max(count, 0)
        return []

    def _inline(self) -> Request | None:
        """Parse an inline command: words on one line. Quotes are deliberately not supported."""
        line_end = self._scratch.find(b"\n", self._start, self._end)
        if (self._end if line_end < 0 else line_end) - self._start > DIRECT_BYTES:
            raise ProtocolError("too big inline request")
        if line_end < 0:
            return None
        line = bytes(self._scratch[self._start : line_end])
        self._start = line_end + 1
        words = line.split()
        if words and _is_http(words):
            raise HttpError
        return list(words)

    def _length_line(self, kind: bytes) -> int | None:
        window = min(self._end, self._start + _MAX_LENGTH_LINE)
        line_end = self._scratch.find(b"\r\n", self._start, window)
        if line_end < 0:
            if self._end - self._start >= _MAX_LENGTH_LINE:
                raise ProtocolError(f"invalid length after '{kind.decode()}'")
            return None
        digits = bytes(self._scratch[self._start + 1 : line_end])
        if not digits.removeprefix(b"-").isdigit():
            raise ProtocolError(f"invalid length after '{kind.decode()}'")
        self._start = line_end + 2
        return int(digits)

    def _argument(self) -> Argument | None:
        if self._skip and not self._drop():
            return None
        if self._bulk < 0 and self._refusal is None and not self._begin_bulk():
            return None
        if self._skip and not self._drop():
            return None
        if self._refusal is not None:
            return self._finish(self._refusal)
        if self._landing is not None:
            return None if self.missing else self._finish(self._landing)
        if self._end - self._start < self._bulk + 2:
            return None
        value = bytes(self._scratch[self._start : self._start + self._bulk])
        self._start += self._bulk
        return self._finish(value)

    def _begin_bulk(self) -> bool:
        if self._start == self._end:
            return False
        if self._scratch[self._start] != _DOLLAR:
            got = chr(self._scratch[self._start])
            raise ProtocolError(f"expected '$', got {got!r}")
        length = self._length_line(b"$")
        if length is None:
            return False
        if length < 0 or length > self.limits.max_bulk_bytes:
            raise ProtocolError("invalid bulk length")
        self._bulk = length
        if length > max(self.limits.max_value_bytes, DIRECT_BYTES):
            self._refuse(RefusedFrame("too_large", length))
            return True
        self._request_bytes += length
        if self._request_bytes > self.limits.max_request_bytes:
            raise ProtocolError("request too large")
        if length < DIRECT_BYTES:
            self._short_bytes += length + _WORD_BYTES
            if self._short_bytes > self.limits.max_short_bytes:
                raise ProtocolError("request of too many words")
            return True
        landing = self._land(self._args, length)
        if isinstance(landing, RefusedFrame):
            self._refuse(landing)
        else:
            self._open(landing)
        return True

    def _refuse(self, refusal: RefusedFrame) -> None:
        self._refusal = refusal
        self._skip = refusal.length
        self._window = SCRATCH_BYTES

    def _open(self, landing: Landing) -> None:
        """Receive into the landing from now on; bytes already buffered are moved there."""
        self._landing = landing
        self._targets = list(landing.views)
        self.missing = landing.length
        self._window = _FRAMING_BYTES
        self._had_long = True
        there = min(landing.length, self._end - self._start)
        if there:
            self._move(there)

    def _move(self, count: int) -> None:
        start, left = self._start, count
        for target in self._targets:
            part = min(left, len(target))
            target[:part] = self._view[start : start + part]
            start, left = start + part, left - part
            if not left:
                break
        self._start = start
        if count < self.missing:
            self.missing -= count
            self._fill(count)
        else:
            self.missing = 0
            self._targets = []

    def _drop(self) -> bool:
        there = min(self._skip, self._end - self._start)
        self._skip -= there
        self._start += there
        return self._skip == 0

    def _finish(self, argument: Argument) -> Argument | None:
        """Return the argument once its CR LF has arrived."""
        if self._end - self._start < 2:
            return None
        if self._scratch[self._start : self._start + 2] != b"\r\n":
            raise ProtocolError("bulk not followed by CR LF")
        self._start += 2
        self._bulk = -1
        self._landing = None
        self._refusal = None
        return argument


def _is_http(words: list[bytes]) -> bool:
    """Return whether an inline command is a line of an HTTP request head."""
    first, last = words[0].upper(), words[-1].upper()
    return first in _HTTP_VERBS or b":" in first or last.startswith(b"HTTP/")
