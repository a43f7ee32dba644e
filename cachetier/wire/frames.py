"""RESP requests, server side: bytes in, whole commands out, in bounded memory.

Sans-I/O. The owner asks `get_buffer()` (or `get_buffers()`) where the next bytes may go, says how
many came with `received()`, and takes commands with `next_request()` until it answers None.

Theory of operation. Bytes land in one scratch buffer, from which short things (lengths, names,
keys) are cut. For a long bulk string the owner is asked for a `Landing`, with the words before it
(so that it can tell a value from anything else), and from then on the buffers handed out are that
landing's rest: a value of some megabytes is received where it will stay, and never copied again.
If the owner refuses, or if the value is longer than allowed, the bytes are read and dropped, and
the argument is a `Refused` that says why: the connection stays usable. What breaks the protocol
itself raises ProtocolError, after which the connection must be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

SCRATCH_BYTES = 64 * 1024
# A bulk from this length on gets its own landing; shorter ones always fit the scratch.
DIRECT_BYTES = 16 * 1024
# What is read with the end of a long value, and next after it: enough for the words around values,
# and little of the next value, as what falls into the scratch must be copied out of it.
_AROUND_BYTES = 2048
# Pieces for one call of the kernel: less than IOV_MAX, which is 1024.
_MAX_TARGETS = 512
# What an object around a word takes, and its place in a list.
_WORD_BYTES = 64
# So many in a row are no client's: each costs time and answers nothing.
_MAX_EMPTY = 1024
# What begins an HTTP request line and is no command here.
_HTTP_VERBS = frozenset(b"CONNECT DELETE HEAD OPTIONS PATCH POST PRI PUT TRACE".split())
# "*" or "$", up to 20 digits, CR LF.
_MAX_LENGTH_LINE = 24
# Redis' own limit of a bulk string: a longer one is a broken client, not a large value.
MAX_BULK_BYTES = 512 * 1024 * 1024


class ProtocolError(Exception):
    """The peer does not speak RESP (any more); the text is fit to be sent as the last reply."""


class HttpError(ProtocolError):
    """An HTTP request came instead, for example one that a web page made a browser send."""

    def __init__(self) -> None:
        super().__init__("this port speaks RESP (Redis), not HTTP")


@dataclass(frozen=True, slots=True)
class RefusedFrame:
    """Stands where an argument would have stood which was read and dropped."""

    reason: str  # "too_large", or what the owner said
    length: int
    detail: str = ""


class Landing(Protocol):
    """Where a long bulk string is received; afterwards it is the argument."""

    @property
    def views(self) -> Sequence[memoryview]:
        """Writable, none of them empty; together `length` bytes."""
        ...

    @property
    def length(self) -> int: ...


class Buffer:
    """A landing of plain memory."""

    __slots__ = ("data", "length", "views")

    def __init__(self, length: int) -> None:
        self.data = bytearray(length)
        self.length = length
        self.views = [memoryview(self.data)]


Argument = bytes | Landing | RefusedFrame
Request = list[Argument]
# Asked with the words before a long bulk string, and its length.
Land = Callable[[Request, int], Landing | RefusedFrame]


@dataclass(slots=True)
class Limits:
    """What one connection may ask for; small before it has logged in."""

    max_args: int = 1024 * 1024
    # Words too short for a place of their own, all of one request together, with what an object
    # around each costs: many small words must not hold what one long word may not.
    max_short_bytes: int = 4 * 1024 * 1024
    max_value_bytes: int = MAX_BULK_BYTES
    max_bulk_bytes: int = MAX_BULK_BYTES
    max_request_bytes: int = MAX_BULK_BYTES


def limits_before_login() -> Limits:
    """Redis' limits for a client which has not given its password, and nothing so long that it
    would be given a place: room for a value drops what others stored."""
    return Limits(
        max_args=10,
        max_value_bytes=DIRECT_BYTES - 1,
        max_bulk_bytes=DIRECT_BYTES - 1,
        max_request_bytes=4 * DIRECT_BYTES,
    )


class RequestParser:
    """`land` gives a place to a long bulk string, or refuses it (see above)."""

    def __init__(self, limits: Limits, land: Land) -> None:
        self.limits = limits
        self._land = land
        self._scratch = bytearray(SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self._start = 0
        self._end = 0
        self._args: Request = []
        self._missing_args = 0
        self._empty = 0  # requests without a word, one after the other
        self._request_bytes = 0
        self._short_bytes = 0
        self._bulk = -1  # length of the bulk being read, -1 between bulks
        self._landing: Landing | None = None
        self._targets: list[memoryview] = []  # what is still empty of the landing
        self._missing = 0  # their bytes
        self._window = SCRATCH_BYTES  # how much to read at once
        self._had_long = False
        self._skip = 0  # bytes of a refused bulk still to drop
        self._refusal: RefusedFrame | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no part of a request has come that has not been taken."""
        return self._start == self._end and not self._missing_args

    # -- where bytes go ------------------------------------------------------------------------
    def get_buffer(self) -> memoryview:
        """One place, for whoever receives into one."""
        return self._targets[0] if self._missing else self._scratch_view()

    def get_buffers(self) -> list[memoryview]:
        """All places in order, for whoever can scatter: the value's rest, and what follows it."""
        if not self._missing:
            return [self._scratch_view()]
        return [*self._targets[:_MAX_TARGETS], *self._after()]

    def _after(self) -> list[memoryview]:
        if len(self._targets) > _MAX_TARGETS:
            return []
        self._start = self._end = 0  # all of it lies in the landing
        return [self._view[:_AROUND_BYTES]]

    def _scratch_view(self) -> memoryview:
        if self._start == self._end:
            self._start = self._end = 0
        elif SCRATCH_BYTES - self._end < DIRECT_BYTES:
            rest = self._end - self._start
            self._scratch[:rest] = self._scratch[self._start : self._end]
            self._start, self._end = 0, rest
        return self._view[self._end : self._end + self._window]

    @property
    def missing(self) -> int:
        """Bytes of the long value being received that have not come; 0 between values."""
        return self._missing

    def received(self, count: int) -> None:
        if not self._missing:
            self._end += count
            return
        if count < self._missing:
            self._missing -= count
            self._fill(count)
            return
        if count > self._missing:
            self._start, self._end = 0, count - self._missing
        self._missing = 0
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

    # -- what they mean ------------------------------------------------------------------------
    def next_request(self) -> Request | None:
        """The next whole command (never empty), or None until more bytes come."""
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

    def _begin(self) -> Request | None:
        """None: more bytes needed. []: go on. Otherwise a whole inline command."""
        if self._start == self._end:
            return None
        if self._scratch[self._start] != ord("*"):
            return self._inline()
        count = self._length_line(b"*")
        if count is None:
            return None
        if count > self.limits.max_args:
            raise ProtocolError("invalid multibulk length")
        self._missing_args = max(count, 0)
        return []

    def _inline(self) -> Request | None:
        """A command typed by hand: words on one line. Quotes are not understood, on purpose."""
        found = self._scratch.find(b"\n", self._start, self._end)
        if (self._end if found < 0 else found) - self._start > DIRECT_BYTES:
            raise ProtocolError("too big inline request")
        if found < 0:
            return None
        line = bytes(self._scratch[self._start : found])
        self._start = found + 1
        words = line.split()
        if words and _is_http(words):
            raise HttpError
        return list(words)

    def _length_line(self, kind: bytes) -> int | None:
        window = min(self._end, self._start + _MAX_LENGTH_LINE)
        found = self._scratch.find(b"\r\n", self._start, window)
        if found < 0:
            if self._end - self._start >= _MAX_LENGTH_LINE:
                raise ProtocolError(f"invalid length after '{kind.decode()}'")
            return None
        digits = bytes(self._scratch[self._start + 1 : found])
        if not digits.removeprefix(b"-").isdigit():
            raise ProtocolError(f"invalid length after '{kind.decode()}'")
        self._start = found + 2
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
            return None if self._missing else self._finish(self._landing)
        if self._end - self._start < self._bulk + 2:
            return None
        value = bytes(self._scratch[self._start : self._start + self._bulk])
        self._start += self._bulk
        return self._finish(value)

    def _begin_bulk(self) -> bool:
        if self._start == self._end:
            return False
        if self._scratch[self._start] != ord("$"):
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
        """From here on bytes go to the landing; those which came already are moved there."""
        self._landing = landing
        self._targets = list(landing.views)
        self._missing = landing.length
        self._window = _AROUND_BYTES
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
        if count < self._missing:
            self._missing -= count
            self._fill(count)
        else:
            self._missing = 0
            self._targets = []

    def _drop(self) -> bool:
        there = min(self._skip, self._end - self._start)
        self._skip -= there
        self._start += there
        return self._skip == 0

    def _finish(self, argument: Argument) -> Argument | None:
        """The argument, once the CR LF after it is there too."""
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
    """Whether an inline command is rather a line of an HTTP request's head: `GET / HTTP/1.1`,
    another verb, a header. RESP proper is not concerned: a browser sends its request line first."""
    first, last = words[0].upper(), words[-1].upper()
    return first in _HTTP_VERBS or b":" in first or last.startswith(b"HTTP/")
