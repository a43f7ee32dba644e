"""Records of ended requests: key usage, access log, decision journal, spans, traffic.

The loop writes only to stderr; lost records are counted; a configuration change loses nothing that
was queued.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from routing.engine.access.key_usage import KeyUse
from routing.engine.access.paths import is_common_path
from routing.engine.config import AccessLogConfig, Config
from routing.engine.observe import tracing
from routing.engine.observe.journal import Journal
from routing.engine.observe.logs import Log
from routing.engine.observe.metrics import Metrics, package_version
from routing.engine.observe.tracing import Attributes, EndedRequest, Exporter, Trace
from routing.engine.observe.traffic import CacheScopes, TrafficRecording
from routing.engine.prompt.identity import Identifier

if TYPE_CHECKING:
    from routing.engine.http.http1 import RequestHead
    from routing.engine.observe.decisions import Decision
    from routing.engine.request import RoutedRequest


class Recorder:
    def __init__(self, log: Log, metrics: Metrics, instance: str) -> None:
        self._log = log
        self._instance = instance
        self._access = AccessLogConfig()
        self._endpoint = ""
        self._identifier: Identifier
        self._journal: Journal | None = None
        self._exporter: Exporter | None = None
        self._share = 0.0
        self.use = KeyUse(instance)
        self.traffic = TrafficRecording(instance)
        self._old: list[Journal | Exporter] = []  # replaced ones that still drain
        self._lines = {kind: metrics.log_dropped.child(kind) for kind in log.dropped}
        self._records = {r: metrics.records.child(r) for r in ("written", "failed", "dropped")}
        self._spans = {r: metrics.spans.child(r) for r in ("sent", "failed", "dropped")}
        self._past: dict[tuple[type, str], int] = {}
        self._troubles: dict[str, str] = {}  # logged once until resolved
        self.traces = False
        metrics.registry.before_render.append(self._refresh)

    def prepare(self, config: Config) -> None:
        """Build the parts of a new configuration that can fail. Raise ConfigError."""
        tracing = config.tracing
        current = self._exporter.config if self._exporter is not None else None
        if tracing is None or tracing == current:
            return
        resource = {
            "service.name": "emberline-router",
            "service.namespace": config.namespace,
            "service.instance.id": self._instance,
            "service.version": package_version(),
            "emberline.endpoint": config.endpoint,
        }
        exporter = Exporter(tracing, resource)
        self._retire(self._exporter)
        self._exporter = exporter

    def configure(self, config: Config, identifier: Identifier) -> None:
        self._access = config.access_log
        self._endpoint = config.endpoint
        self._identifier = identifier
        if config.tracing is None:
            self._retire(self._exporter)
            self._exporter = None
        self.use.configure(frozenset(key.id for key in config.keys or ()))
        self._share = config.tracing.sample if config.tracing is not None else 0.0
        self.traces = self._exporter is not None
        scopes = CacheScopes(
            "shared" if config.keys is None else config.cache_isolation,
            {key.id: key.group for key in config.keys or () if key.group},
        )
        self.traffic.configure(
            config.recording, config.prefix_block_bytes, identifier.digest, scopes
        )
        current = self._journal.config if self._journal is not None else None
        if config.journal != current:
            self._retire(self._journal)
            self._journal = Journal(config.journal) if config.journal is not None else None

    def _retire(self, old: Journal | Exporter | None) -> None:
        if old is not None:
            old.stop()
            self._old.append(old)

    def close(self) -> None:
        """Wait briefly for queued records to be written."""
        for last in (self._journal, self._exporter):
            self._retire(last)
        self._journal = self._exporter = None
        self.traces = False
        self.traffic.stop()
        for old in self._old:
            old.join()

    def trace(self, head: RequestHead) -> Trace | None:
        return tracing.begin_trace(head, self._share)

    def ended(self, exchange: RoutedRequest) -> None:
        decision = exchange.decision
        self.use.add(decision)
        access = self._access
        is_written = access.errors if decision.error else False
        if (is_written or random.random() < access.sample) and self._log.enabled("info"):
            self._log.later("request", _access_facts(exchange, decision))
        journal = self._journal
        if journal is not None and random.random() < journal.config.sample:
            endpoint, digest = self._endpoint, self._identifier.digest
            journal.add((decision, lambda record: record.show(endpoint, digest)))
        if self.traffic.on:
            self.traffic.add(exchange)
        if exchange.trace is not None and self._exporter is not None:
            exchange.trace.ended(decision.error)
            self._exporter.add(_span_data(exchange, exchange.trace, decision))

    def tick(self) -> None:
        """Log write failures of records and spans once, and their recovery."""
        journal = self._journal
        if journal is not None:
            self._trouble("decisions_not_written", journal.error)
        exporter = self._exporter
        if exporter is not None:
            error = "the collector rejects spans" if exporter.failing else ""
            self._trouble("spans_not_sent", error)

    def _trouble(self, event: str, error: str) -> None:
        before = self._troubles.get(event, "")
        if error != before:
            self._troubles[event] = error
            self._log.event("warning" if error else "info", event, error=error)

    def _refresh(self) -> None:
        for kind, number in self._lines.items():
            number.set(self._log.dropped[kind])
        for old in [old for old in self._old if old.ended]:
            self._old.remove(old)
            self._count(old, self._past)
        now = dict(self._past)
        for part in (self._journal, self._exporter, *self._old):
            if part is not None:
                self._count(part, now)
        for family, numbers in ((Journal, self._records), (Exporter, self._spans)):
            for result, number in numbers.items():
                number.set(now.get((family, result), 0))

    @staticmethod
    def _count(part: Journal | Exporter, into: dict[tuple[type, str], int]) -> None:
        for result, count in part.counts().items():
            into[type(part), result] = into.get((type(part), result), 0) + count


def _access_facts(exchange: RoutedRequest, decision: Decision) -> dict[str, Any]:
    return {
        "method": exchange.head.method.decode("latin-1"),
        "path": exchange.head.path[:200].decode("latin-1"),
        "status": decision.status,
        "error": decision.error,
        "worker": decision.chosen,
        "reason": decision.reason,
        "decision": decision.id,
        "request_id": decision.request_id,
        "key": decision.key_id,
        "duration_s": round(decision.duration_s or 0.0, 6),
        "queued_s": round(decision.queued_s, 6),
        "ttft_s": decision.ttft_s,
        "attempts": decision.attempts,
    }


def _span_data(exchange: RoutedRequest, trace: Trace, decision: Decision) -> EndedRequest:
    """Return the span data, by OpenTelemetry's HTTP and GenAI conventions."""
    head = exchange.head
    method = head.method.decode("latin-1")
    path = head.path.decode("latin-1")
    attributes: Attributes = {
        "http.request.method": method,
        "url.path": path[:200],
        "gen_ai.request.model": decision.model,
        "emberline.decision": decision.id,
        "emberline.reason": decision.reason,
        "emberline.worker": decision.chosen,
        "emberline.request_id": decision.request_id,
        "emberline.predicted_cached_tokens": decision.predicted,
    }
    if decision.status is not None:
        attributes["http.response.status_code"] = decision.status
    if decision.cached_tokens is not None:
        attributes["emberline.cached_tokens"] = decision.cached_tokens
    if not decision.estimated:
        attributes["gen_ai.usage.input_tokens"] = decision.prompt_tokens
    if decision.completion_tokens is not None and not decision.estimated:
        attributes["gen_ai.usage.output_tokens"] = decision.completion_tokens
    if decision.ttft_s is not None:
        attributes["emberline.ttft_s"] = decision.ttft_s
    # Unknown paths would create unbounded span names.
    name = f"{method} {path}" if is_common_path(head.path) else method
    return EndedRequest(trace, name, attributes, decision.queued_s, decision.error)
