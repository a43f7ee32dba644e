"""Metrics of the router: names, buckets and initial children.

Base units; no label value is caller-controlled (unknown models count as "other"); children of
removed workers are dropped.
"""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final

from console.processkit import descriptors
from console.processkit.listener import HANDSHAKE_REASONS
from console.processkit.metrics import Histogram, Number
from routing.engine.errors import REASONS
from routing.engine.observe.metric_types import Registry

OTHER = "other"
# Values of the label `traffic`. The console's own key: cache proof, calibrations, benchmarks and
# playground, which figures of callers leave out.
CALLERS: Final = ""
CONSOLE: Final = "console"
MODELS_LIMIT = 64  # base models and LoRA adapters
CACHE_STATES = ("none", "partial", "full")
RETRY_REASONS = (
    *("stale_connection", "upstream_connect", "upstream_reset", "upstream_5xx"),
    *("upstream_protocol", "engine_died", "engine_stuck", "worker_busy"),
)
# Reasons for estimated tokens: not reported by the engine, or unfinished answer.
ESTIMATE_REASONS = (
    *("not_reported", "client_cancelled", "stalled_client"),
    *("broken_stream", "upstream_timeout", "bad_request"),
)
_EXPECTED_CODES = (200, 400, 401, 404, 429, 500, 502, 503, 504)

TTFT_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75,
    1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 100.0,
)  # fmt: skip
ITL_S = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1,
    0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
DURATION_S = (*TTFT_S, 200.0, 400.0, 900.0)
QUEUE_S = (0.0, *TTFT_S)  # first bucket: not queued
OVERHEAD_S = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
)  # fmt: skip
RATIO = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def package_version() -> str:
    try:
        return version("emberline")
    except PackageNotFoundError:
        return "unknown"


def is_compiled() -> bool:
    """Return True if requests are routed by machine code (deploy/containers/compile_engines.py)."""
    module = find_spec("routing.engine.exchange")
    return module is not None and not (module.origin or "").endswith(".py")


class ModelMetrics:
    """Children of one model's requests, of callers or of the console."""

    __slots__ = (
        *("cached", "codes", "completion", "duration", "itl", "name", "predicted", "prompt"),
        *("traffic", "ttft"),
    )

    def __init__(self, metrics: Metrics, name: str, traffic: str = CALLERS) -> None:
        self.name = name
        self.traffic = traffic
        self.ttft: dict[str, Histogram] = {
            state: metrics.ttft.child(name, state, traffic) for state in CACHE_STATES
        }
        self.itl = metrics.itl.child(name, traffic)
        self.duration = metrics.duration.child(name, traffic)
        self.prompt = metrics.prompt_tokens.child(name, traffic)
        self.cached = metrics.cached_tokens.child(name, traffic)
        self.predicted = metrics.predicted_tokens.child(name, traffic)
        self.completion = metrics.completion_tokens.child(name, traffic)
        self.codes: dict[int, Number] = {
            code: metrics.requests.child(name, str(code), traffic) for code in _EXPECTED_CODES
        }


class StrategyMetrics:
    __slots__ = ("lookup", "match_ratio", "overhead")

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.overhead = metrics.overhead.child(name)
        self.lookup = metrics.lookup.child(name)
        self.match_ratio = metrics.match_ratio.child(name)


class Metrics:
    def __init__(self, namespace: str, endpoint: str) -> None:
        self.registry = Registry({"namespace": namespace, "endpoint": endpoint})
        self._declare_requests()
        self._declare_tokens()
        self._declare_workers()
        registry = self.registry
        self.reload_time = registry.gauge(
            "emberline_router_config_last_reload_success_timestamp_seconds",
            "Time the current configuration was applied (Unix time, s).",
        ).child()
        self.reloads = registry.counter(
            "emberline_router_config_reloads_total",
            "Configuration changes, by outcome.",
            ("result",),
        )
        for result in ("ok", "refused"):
            self.reloads.child(result)
        handshakes = registry.counter(
            "emberline_router_tls_handshake_failures_total",
            "Failed TLS handshakes of clients.",
            ("reason",),
        )
        self._handshakes = {reason: handshakes.child(reason) for reason in HANDSHAKE_REASONS}
        registry.gauge(
            "emberline_router_build_info",
            "Always 1; the version, and whether the request path is compiled, are labels.",
            ("version", "compiled"),
        ).child(package_version(), "yes" if is_compiled() else "no").set(1)
        # Start timestamp, for scrapers that detect counter resets.
        registry.gauge(
            "process_start_time_seconds", "Start time of the process (Unix time, s)."
        ).child().value = time.time()
        self.open_fds = registry.gauge("process_open_fds", "Open files and sockets.").child()
        registry.gauge("process_max_fds", "Limit of open files and sockets.").child().set(
            descriptors.limit()
        )
        self._errors = {reason: self.errors.child(reason) for reason in REASONS}
        self._retries = {reason: self.retries.child(reason) for reason in RETRY_REASONS}
        self._models: dict[str, ModelMetrics] = {}
        self._console: dict[str, ModelMetrics] = {}
        self.other = self._models[OTHER] = ModelMetrics(self, OTHER)

    def _declare_requests(self) -> None:
        registry = self.registry
        self.requests = registry.counter(
            "emberline_router_requests_total", "Requests completed.", ("model", "code", "traffic")
        )
        self.errors = registry.counter(
            "emberline_router_request_errors_total", "Failed requests.", ("reason",)
        )
        self.ttft = registry.histogram(
            "emberline_router_time_to_first_token_seconds",
            "Time from the complete request to the first byte of a streamed response (s).",
            TTFT_S,
            ("model", "cache", "traffic"),
        )
        self.itl = registry.histogram(
            "emberline_router_inter_token_latency_seconds",
            "Time between two chunks of a streamed response (s).",
            ITL_S,
            ("model", "traffic"),
        )
        self.duration = registry.histogram(
            "emberline_router_request_duration_seconds",
            "Time from the complete request to the end of the response (s).",
            DURATION_S,
            ("model", "traffic"),
        )
        self.overhead = registry.histogram(
            "emberline_router_overhead_seconds",
            "Router time before the request was sent to the worker (s).",
            OVERHEAD_S,
            ("strategy",),
        )
        self.lookup = registry.histogram(
            "emberline_router_lookup_duration_seconds",
            "Time to choose the worker (s).",
            OVERHEAD_S,
            ("strategy",),
        )
        self.queue_duration = registry.histogram(
            "emberline_router_queue_duration_seconds",
            "Queue time of requests, whatever their outcome (s).",
            QUEUE_S,
        ).child()
        self.queue_depth = registry.gauge(
            "emberline_router_queue_depth", "Requests waiting for a slot."
        ).child()
        self.queue_limit = registry.gauge(
            "emberline_router_queue_limit", "Queue limit; 0: none configured."
        ).child()
        self.request_buffer = registry.gauge(
            "emberline_router_request_buffer_bytes",
            "Request bytes buffered, of limits.buffer_bytes.",
        ).child()
        self.log_dropped = registry.counter(
            "emberline_router_log_lines_dropped_total",
            "Log lines dropped because stderr was not read fast enough.",
            ("kind",),
        )
        self.records = registry.counter(
            "emberline_router_decision_records_total",
            "Decisions for the decision file, by outcome.",
            ("result",),
        )
        self.spans = registry.counter(
            "emberline_router_traced_requests_total", "Requests recorded as spans.", ("result",)
        )
        self.retries = registry.counter(
            "emberline_router_retries_total", "Retried requests.", ("reason",)
        )

    def _declare_tokens(self) -> None:
        registry = self.registry
        self.prompt_tokens = registry.counter(
            "emberline_router_prompt_tokens_total",
            "Prompt tokens reported by engines, counted once per choice (n).",
            ("model", "traffic"),
        )
        self.cached_tokens = registry.counter(
            "emberline_router_cached_prompt_tokens_total",
            "Cached prompt tokens reported by engines.",
            ("model", "traffic"),
        )
        self.predicted_tokens = registry.counter(
            "emberline_router_predicted_cached_tokens_total",
            "Cached prompt tokens predicted by the router.",
            ("model", "traffic"),
        )
        self.completion_tokens = registry.counter(
            "emberline_router_completion_tokens_total",
            "Completion tokens reported by engines.",
            ("model", "traffic"),
        )
        self.estimated_tokens = registry.counter(
            "emberline_router_estimated_tokens_total",
            "Tokens not reported by an engine, estimated by the router.",
            ("kind", "reason"),
        )
        for reason in ESTIMATE_REASONS:
            for kind in ("prompt", "completion"):
                self.estimated_tokens.child(kind, reason)
        self.match_ratio = registry.histogram(
            "emberline_router_prefix_match_ratio",
            "Share of the prompt predicted to be cached on the chosen worker.",
            RATIO,
            ("strategy",),
        )

    def _declare_workers(self) -> None:
        registry = self.registry
        worker = ("worker",)
        self.decisions = registry.counter(
            "emberline_router_routing_decisions_total",
            "Routing decisions, by reason and worker.",
            ("strategy", "reason", "worker"),
        )
        self.in_flight = registry.gauge(
            "emberline_router_in_flight_requests", "Requests in flight per worker.", worker
        )
        self.worker_up = registry.gauge(
            "emberline_router_worker_up", "1 while health checks pass.", worker
        )
        self.circuit = registry.gauge(
            "emberline_router_worker_circuit_state",
            "Circuit breaker state: 0 closed, 1 open after failures, 2 half open "
            "(one trial request).",
            worker,
        )
        self.worker_stuck = registry.gauge(
            "emberline_router_worker_stuck",
            "1 while a worker's engine makes no progress behind a passing health check.",
            worker,
        )
        self.worker_pace = registry.gauge(
            "emberline_router_worker_pace_ratio",
            "Time of a worker for the same prompts, relative to the fastest workers; 1: alike.",
            worker,
        )
        self.cache_tokens = registry.gauge(
            "emberline_router_worker_cache_tokens",
            "Cache capacity of a worker, from its metrics or the configuration "
            "(bytes); 0: unknown.",
            worker,
        )
        self.discovery_errors = registry.counter(
            "emberline_router_discovery_errors_total",
            "Failed worker discovery queries; the last result stays in use.",
            ("source", "reason"),
        )
        self.discovery_success = registry.gauge(
            "emberline_router_discovery_last_success_timestamp_seconds",
            "Time of the last successful worker discovery (Unix time, s); 0: never.",
            ("source",),
        )
        self.discovered = registry.gauge(
            "emberline_router_discovered_workers",
            "Workers in the last successful discovery.",
            ("source",),
        )
        self.index_blocks = registry.gauge(
            "emberline_router_index_blocks", "Prefix blocks remembered for a worker.", worker
        )

    def model(self, name: str, key_id: str) -> ModelMetrics:
        """Return the children of a served model, else of `other`, for the traffic of this key."""
        model = self._models.get(name, self.other)
        if key_id != CONSOLE:
            return model
        children = self._console.get(model.name)
        if children is None:
            children = self._console[model.name] = ModelMetrics(self, model.name, CONSOLE)
        return children

    def know_model(self, name: str) -> None:
        if name and name not in self._models and len(self._models) < MODELS_LIMIT:
            self._models[name] = ModelMetrics(self, name)

    def count(self, model: ModelMetrics, status: int) -> None:
        number = model.codes.get(status)
        if number is None:
            number = self.requests.child(model.name, str(status), model.traffic)
            model.codes[status] = number
        number.value += 1

    def error(self, reason: str) -> None:
        self._errors[reason].value += 1

    def estimated(self, reason: str, prompt: int, completion: int) -> None:
        self.estimated_tokens.child("prompt", reason).value += prompt
        self.estimated_tokens.child("completion", reason).value += completion

    def handshake_failed(self, reason: str) -> None:
        self._handshakes[reason].value += 1

    def retry(self, reason: str) -> None:
        self._retries[reason].value += 1

    def forget_source(self, source: str) -> None:
        for family in (self.discovery_errors, self.discovery_success, self.discovered):
            family.drop(0, source)

    def forget_worker(self, worker: str) -> None:
        self.decisions.drop(2, worker)
        gauges = (
            self.in_flight,
            self.worker_up,
            self.worker_stuck,
            self.worker_pace,
            self.circuit,
            self.cache_tokens,
        )
        for family in (*gauges, self.index_blocks):
            family.drop(0, worker)
