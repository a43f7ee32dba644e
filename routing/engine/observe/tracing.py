"""W3C trace context propagation and sampling.

Sampled requests send the attempt's span as parent, so that vLLM's spans attach to it; others pass
unchanged. An invalid `traceparent` starts a new trace and drops `tracestate` (W3C Trace Context,
3.2.2.3 and 3.3).
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
    """One attempt at a worker, with its own span."""

    __slots__ = ("begun_ns", "ended_ns", "error", "span_id", "worker")

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.span_id = random.getrandbits(64) or 1
        self.begun_ns = time.time_ns()
        self.ended_ns = 0
        self.error = ""


class Trace:
    """One sampled request; wall-clock times."""

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
        """Begin an attempt; return the header fields to send."""
        attempt = Attempt(worker)
        self.attempts.append(attempt)
        line = f"traceparent: 00-{self.trace_id:032x}-{attempt.span_id:016x}-{self.flags:02x}\r\n"
        return self._fields + line.encode()

    def failed(self, error: str) -> None:
        """End the current attempt; another may follow."""
        if self.attempts:
            last = self.attempts[-1]
            last.error = error
            last.ended_ns = time.time_ns()

    def ended(self, error: str) -> None:
        self.ended_ns = time.time_ns()
        if self.attempts and not self.attempts[-1].ended_ns:
            self.attempts[-1].error = error
            self.attempts[-1].ended_ns = self.ended_ns


def begin_trace(head: RequestHead, share: float) -> Trace | None:
    """Return the trace of a sampled request, else None."""
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
    parent = parse_traceparent(values[0]) if len(values) == 1 else None
    if parent is not None:
        return Trace(parent, b"".join(others + states)) if parent.flags & _SAMPLED else None
    return Trace(None, b"".join(others)) if random.random() < share else None


def parse_traceparent(traceparent: bytes) -> Parent | None:
    """Return None for an invalid header, which the standard ignores."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    parent = Parent(int(trace, 16), int(span, 16), int(flags, 16))
    return parent if parent.trace_id and parent.span_id else None
