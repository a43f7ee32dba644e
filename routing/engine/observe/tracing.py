"""W3C trace context: which requests are traced, and under which ids they go on.

Without `tracing` configured, `traceparent` and `tracestate` pass through as they came. With it, a
request which brings a trace is recorded when its sender recorded it, and one which brings none by
chance; the worker then gets the id of the attempt's own span as its parent, so that vLLM's spans
hang below it. A request which is not recorded still passes its trace on unchanged: what its
sender decided is not ours to change. A `traceparent` which is not valid starts a new trace, and
its `tracestate` goes with it (W3C Trace Context, 3.2.2.3 and 3.3).

Promises to add nothing to a request which is not sampled. Must not know how spans are exported.
"""

from __future__ import annotations

import random
import re
import time
from typing import NamedTuple

from routing.engine.http.http1 import RequestHead

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_SAMPLED = 1


class Parent(NamedTuple):
    trace_id: int
    span_id: int
    flags: int


class Attempt:
    """One try at a worker: a span of its own."""

    __slots__ = ("begun_ns", "ended_ns", "error", "span_id", "worker")

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.span_id = random.getrandbits(64) or 1
        self.begun_ns = time.time_ns()
        self.ended_ns = 0
        self.error = ""


class Trace:
    """One recorded request; times are of the wall clock, as spans want them."""

    __slots__ = ("_fields", "attempts", "begun_ns", "ended_ns", "flags", "parent", "span_id",
                 "trace_id")  # fmt: skip

    def __init__(self, parent: Parent | None, fields: bytes) -> None:
        self.parent = parent
        self.trace_id = parent.trace_id if parent is not None else random.getrandbits(128) or 1
        self.flags = (parent.flags if parent is not None else 0) | _SAMPLED
        self.span_id = random.getrandbits(64) or 1
        self.begun_ns = time.time_ns()
        self.ended_ns = 0
        self.attempts: list[Attempt] = []
        self._fields = fields

    def attempt(self, worker: str) -> bytes:
        """Another try begins; the header fields it goes out with."""
        attempt = Attempt(worker)
        self.attempts.append(attempt)
        line = f"traceparent: 00-{self.trace_id:032x}-{attempt.span_id:016x}-{self.flags:02x}\r\n"
        return self._fields + line.encode()

    def failed(self, error: str) -> None:
        """The present try is over, another may follow."""
        if self.attempts:
            last = self.attempts[-1]
            last.error = error
            last.ended_ns = time.time_ns()

    def ended(self, error: str) -> None:
        self.ended_ns = time.time_ns()
        if self.attempts and not self.attempts[-1].ended_ns:
            self.attempts[-1].error = error
            self.attempts[-1].ended_ns = self.ended_ns


def begin(head: RequestHead, share: float) -> Trace | None:
    """The trace of a request which is to be recorded; None: it is not."""
    if b"traceparent" not in head.fields.lower():
        return Trace(None, head.fields) if random.random() < share else None
    values: list[bytes] = []
    others: list[bytes] = []
    states: list[bytes] = []
    for line in head.fields.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"traceparent":
            values.append(value.strip(b" \t"))
        elif name == b"tracestate":
            states.append(line + b"\r\n")
        else:
            others.append(line + b"\r\n")
    parent = read(values[0]) if len(values) == 1 else None
    if parent is not None:
        return Trace(parent, b"".join(others + states)) if parent.flags & _SAMPLED else None
    return Trace(None, b"".join(others)) if random.random() < share else None


def read(traceparent: bytes) -> Parent | None:
    """None where the standard wants it ignored."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    parent = Parent(int(trace, 16), int(span, 16), int(flags, 16))
    return parent if parent.trace_id and parent.span_id else None
