"""W3C trace context propagation and sampling, and export of OpenTelemetry spans.

Sampled requests send the attempt's span as parent, so that vLLM's spans attach to it; others pass
unchanged. An invalid `traceparent` starts a new trace and drops `tracestate` (W3C Trace Context,
3.2.2.3 and 3.3). Each request is a server span with a child for queueing and one per attempt; spans
contain no key, prompt or session, and are exported from a background thread.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from routing.engine.config import ConfigError, TracingConfig
from routing.engine.http.http1 import RequestHead
from routing.engine.observe.background_thread import BackgroundThread, yield_gil

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_SAMPLED = 1
QUEUE_LIMIT = 2048
_BATCH = 256
_LINGER_S = 1.0  # batching delay
Attributes = dict[str, str | int | float]


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
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    parent = Parent(int(trace, 16), int(span, 16), int(flags, 16))
    return parent if parent.trace_id and parent.span_id else None


class EndedRequest(NamedTuple):
    trace: Trace
    name: str
    attributes: Attributes
    queued_s: float
    error: str


class Exporter(BackgroundThread[EndedRequest]):
    """Exporter of spans. `sent`, `failed`: numbers of requests, written by the thread only."""

    def __init__(self, config: TracingConfig, resource: dict[str, str]) -> None:
        """Raise ConfigError if the OpenTelemetry packages are missing."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError:
            raise ConfigError(
                "tracing",
                config.endpoint,
                "needs packages that are not installed",
                "Install emberline[tracing].",
            ) from None
        self.config = config
        self.sent = 0
        self.failed = 0
        self.failing = False
        # Failures are counted and logged here; the library's own log would break the JSON format.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        self._resource = Resource(resource)
        self._exporter = OTLPSpanExporter(endpoint=config.endpoint, timeout=config.timeout_s)
        super().__init__("spans", QUEUE_LIMIT, _BATCH, _LINGER_S)

    def counts(self) -> dict[str, int]:
        return {"sent": self.sent, "failed": self.failed, "dropped": self.dropped}

    # -- runs in the thread

    def work(self, items: list[EndedRequest]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans: list[ReadableSpan] = []
        for item in items:
            spans += self._spans(item)
            yield_gil()
        result = self._exporter.export(spans)
        self.failing = result is not SpanExportResult.SUCCESS
        if not self.failing:
            self.sent += len(items)
        else:
            self.failed += len(items)

    def _spans(self, item: EndedRequest) -> Iterator[ReadableSpan]:
        from opentelemetry.trace import SpanKind

        trace = item.trace
        parent = trace.parent.span_id if trace.parent is not None else 0
        yield self._span(
            item, item.name, SpanKind.SERVER, trace.span_id, parent,
            (trace.begun_ns, trace.ended_ns), item.attributes, item.error,
        )  # fmt: skip
        if item.queued_s:
            waited = (trace.begun_ns, trace.begun_ns + int(item.queued_s * 1e9))
            # The id must be unique within the trace only.
            queue = trace.span_id ^ 1 or 2
            yield self._span(item, "queue", SpanKind.INTERNAL, queue, trace.span_id, waited, {}, "")
        for number, attempt in enumerate(trace.attempts):
            attributes: Attributes = {"emberline.worker": attempt.worker}
            if number:
                attributes["http.request.resend_count"] = number
            yield self._span(
                item, item.name, SpanKind.CLIENT, attempt.span_id, trace.span_id,
                (attempt.begun_ns, attempt.ended_ns), attributes, attempt.error,
            )  # fmt: skip

    def _span(
        self, item: EndedRequest, name: str, kind: object, span_id: int, parent_id: int,
        times: tuple[int, int], attributes: Attributes, error: str,
    ) -> ReadableSpan:  # fmt: skip
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        assert isinstance(kind, SpanKind)
        flags = TraceFlags(item.trace.flags)
        trace_id = item.trace.trace_id
        if error:
            attributes = {**attributes, "error.type": error}
        return ReadableSpan(
            name=name,
            context=SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags),
            parent=SpanContext(
                trace_id, parent_id, is_remote=kind is SpanKind.SERVER, trace_flags=flags
            )
            if parent_id
            else None,
            resource=self._resource,
            attributes=attributes,
            kind=kind,
            status=Status(StatusCode.ERROR if error else StatusCode.UNSET),
            start_time=times[0],
            end_time=max(times),
        )
