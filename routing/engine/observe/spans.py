"""OpenTelemetry spans of ended requests, exported from a background thread.

Each request is a server span with a child for queueing and one per attempt. Spans contain no key,
prompt or session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from routing.engine.config import ConfigError, TracingConfig
from routing.engine.observe.background_thread import BackgroundThread, yield_gil
from routing.engine.observe.tracing import Attempt, Trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

QUEUE_LIMIT = 2048
_BATCH = 256
_LINGER_S = 1.0  # batching delay
Attributes = dict[str, str | int | float]


class EndedRequest(NamedTuple):
    trace: Trace
    name: str
    attributes: Attributes
    queued_s: float
    error: str


class Exporter(BackgroundThread[EndedRequest]):
    """`sent`, `failed`: numbers of requests, written by the thread only."""

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
            yield self._attempt(item, number, attempt)

    def _attempt(self, item: EndedRequest, number: int, attempt: Attempt) -> ReadableSpan:
        from opentelemetry.trace import SpanKind

        attributes: Attributes = {"emberline.worker": attempt.worker}
        if number:
            attributes["http.request.resend_count"] = number
        return self._span(
            item, item.name, SpanKind.CLIENT, attempt.span_id, item.trace.span_id,
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
