"""Every PromQL expression of the dashboards, by name.

Promises that nothing a person typed reaches Prometheus but as an escaped label value, and that
names of metrics stand here only. Names are those of vLLM 0.32, of our router and of our L2 engine.
Pure; knows neither HTTP nor charts.

The rate window is four scrapes at least, so that one missed scrape leaves no hole, and never less
than a step, so that no request falls between two points.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

SCRAPE_S = 5
JOBS = ("vllm", "router", "l2")  # as targets.py names them
TOP = 12  # lines a chart can carry; more are the business of a table

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

# Metric behind a panel, and the job whose targets export it.
TTFT = "vllm:time_to_first_token_seconds"
PROMPT = "vllm:prompt_tokens_total"
BY_SOURCE = "vllm:prompt_tokens_by_source_total"
CACHED = "vllm:prompt_tokens_cached_by_source_total"
WRITTEN = "vllm:kv_offload_tiering_write_bytes_total"
ITL = "vllm:inter_token_latency_seconds"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
REJECTED = "vllm:admission_rejections_total"
PREEMPTIONS = "vllm:num_preemptions_total"
KV_USAGE = "vllm:kv_cache_usage_perc"
KV_USAGE_OLD = "vllm:gpu_cache_usage_perc"  # until 0.11
PROMOTIONS_FAILED = "vllm:kv_offload_tiering_promotion_job_failures_total"
CASCADES_FAILED = "vllm:kv_offload_tiering_cascade_job_failures_total"
BLOCKS_DROPPED = "vllm:kv_offload_tiering_backpressure_blocks_dropped_total"
REQUESTS = "emberline_router_requests_total"
DECISIONS = "emberline_router_routing_decisions_total"
ROUTER_TTFT = "emberline_router_time_to_first_token_seconds"
ROUTER_CACHED = "emberline_router_cached_prompt_tokens_total"
ROUTER_PREDICTED = "emberline_router_predicted_cached_tokens_total"
WORKER_UP = "emberline_router_worker_up"
QUEUE_DEPTH = "emberline_router_queue_depth"
QUEUE_LIMIT = "emberline_router_queue_limit"
CONFIG_RELOADS = "emberline_router_config_reloads_total"
INDEX_LAG = "emberline_router_index_event_lag_seconds"
KV_FALLBACKS = "emberline_router_kv_fallbacks_total"
KV_RECOVERIES = "emberline_router_kv_recoveries_total"
KV_EVENTS_UP = "emberline_router_kv_events_up"
KV_BELIEVED = "emberline_router_kv_index_believed"
KV_PROBE = "emberline_router_kv_probe_success"
L2_LOOKUPS = "emberline_l2_lookup_blocks_total"
L2_HITS = "emberline_l2_hit_blocks_total"
L2_USED = "emberline_l2_used_bytes"
L2_CAPACITY = "emberline_l2_capacity_bytes"
L2_OPERATIONS = "emberline_l2_operations_total"
L2_DURATION = "emberline_l2_operation_duration_seconds"
L2_EVICTED = "emberline_l2_evicted_blocks_total"
L2_INTEGRITY = "emberline_l2_integrity_failures_total"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is looked at: one endpoint, or when `endpoint` is "" those `among`; None: all."""

    endpoint: str = ""
    namespace: str = "default"
    among: tuple[str, ...] | None = None

    def engines(self, **more: str) -> str:
        """The selector of a worker's metrics."""
        return self._braces("endpoint_name", more)

    def router(self, **more: str) -> str:
        """The selector of a router's metrics, which name their endpoint themselves."""
        return self._braces("endpoint", more)

    def _braces(self, label: str, more: dict[str, str]) -> str:
        pairs = dict(more)
        if self.endpoint:
            pairs |= {"namespace": self.namespace, label: self.endpoint}
        elif self.among is not None:
            # No endpoint is called "-": an empty pattern would match what has no endpoint.
            pairs[f"{label}_re"] = "|".join(self.among) or "-"
        return selector(pairs)


@dataclass(frozen=True, slots=True)
class Times:
    step_s: int
    range_s: int

    @property
    def rate_s(self) -> int:
        return max(4 * SCRAPE_S, self.step_s)


Query = Callable[[Scope, Times], str]
QUERIES: dict[str, Query] = {}


def escaped(value: str) -> str:
    """A label value between PromQL's quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def selector(pairs: dict[str, str]) -> str:
    """`{a="x",b="y"}`; a key ending in `_re` is matched as a pattern written in this file."""
    shown = []
    for key, value in sorted(pairs.items()):
        label, match = (key[:-3], "=~") if key.endswith("_re") else (key, "=")
        if not _LABEL.fullmatch(label):
            raise ValueError(f"{label!r} is not the name of a label")
        shown.append(f'{label}{match}"{escaped(value)}"')
    return "{" + ",".join(shown) + "}"


def named(name: str) -> Callable[[Query], Query]:
    def register(query: Query) -> Query:
        QUERIES[name] = query
        return query

    return register


def render(name: str, scope: Scope, times: Times) -> str:
    return QUERIES[name](scope, times)


def _busiest(by: str, metric: str, braces: str, times: Times) -> str:
    """Keeps the TOP groups of the whole range: the same ones at every point."""
    return f"and topk({TOP}, sum by ({by}) (increase({metric}{braces}[{times.range_s}s] @ end())))"


def _rate_by(by: str, metric: str, braces: str, times: Times) -> str:
    return f"sum by ({by}) (rate({metric}{braces}[{times.rate_s}s]))"


@named("requests_by_endpoint")
def requests_by_endpoint(scope: Scope, times: Times) -> str:
    braces = scope.router()
    rate = _rate_by("endpoint", REQUESTS, braces, times)
    return f"{rate} {_busiest('endpoint', REQUESTS, braces, times)}"


@named("requests_by_outcome")
def requests_by_outcome(scope: Scope, times: Times) -> str:
    """`outcome` is the first digit of the status code."""
    rate = f"rate({REQUESTS}{scope.router()}[{times.rate_s}s])"
    return f'sum by (outcome) (label_replace({rate}, "outcome", "$1", "code", "(.).*"))'


def _ttft(quantile: float) -> Query:
    def query(scope: Scope, times: Times) -> str:
        buckets = _rate_by("le", f"{TTFT}_bucket", scope.engines(), times)
        return f"histogram_quantile({quantile}, {buckets})"

    return query


for _percent in (50, 90, 99):
    named(f"ttft_p{_percent}")(_ttft(_percent / 100))


@named("ttft_by_cache")
def ttft_by_cache(scope: Scope, times: Times) -> str:
    """The median the router saw, apart for prompts found in a cache not at all, partly, wholly."""
    buckets = _rate_by("le, cache", f"{ROUTER_TTFT}_bucket", scope.router(), times)
    return f"histogram_quantile(0.5, {buckets})"


@named("prompt_share_by_source")
def prompt_share_by_source(scope: Scope, times: Times) -> str:
    """Where prompt tokens came from, as shares of one. vLLM has no word for our L2: its tier says
    disk; p2p and unspecified ones are beyond the worker too. All prompt tokens are the
    denominator, for `prompt_tokens_total` counts the cached ones as well."""
    sources = {
        "device": (CACHED, {"source": "device"}),
        "l1": (CACHED, {"source": "host"}),
        "l2": (CACHED, {"source_re": "disk|p2p|external_unspecified"}),
        "computed": (BY_SOURCE, {"source": "local_compute"}),
    }
    parts = [
        f"label_replace(rate({metric}{scope.engines(**labels)}[{times.rate_s}s]), "
        f'"tier", "{tier}", "", "")'
        for tier, (metric, labels) in sources.items()
    ]
    every = f"sum(rate({PROMPT}{scope.engines()}[{times.rate_s}s])) > 0"
    return f"sum by (tier) ({' or '.join(parts)}) / on () group_left () ({every})"


@named("reuse_by_endpoint")
def reuse_by_endpoint(scope: Scope, times: Times) -> str:
    by, braces = "endpoint_name", scope.engines()
    computed = _rate_by(by, BY_SOURCE, scope.engines(source="local_compute"), times)
    every = _rate_by(by, PROMPT, braces, times)
    return f"1 - {computed} / ({every} > 0) {_busiest(by, PROMPT, braces, times)}"


@named("reuse_each")
def reuse_each(scope: Scope, times: Times) -> str:
    """As `reuse_by_endpoint`, of every endpoint: for lists, at one moment."""
    by = "endpoint_name"
    computed = _rate_by(by, BY_SOURCE, scope.engines(source="local_compute"), times)
    return f"1 - {computed} / ({_rate_by(by, PROMPT, scope.engines(), times)} > 0)"


@named("ttft_p90_each")
def ttft_p90_each(scope: Scope, times: Times) -> str:
    buckets = _rate_by("le, endpoint_name", f"{TTFT}_bucket", scope.engines(), times)
    return f"histogram_quantile(0.9, {buckets})"


@named("requests_total")
def requests_total(scope: Scope, times: Times) -> str:
    return f"sum(rate({REQUESTS}{scope.router()}[{times.rate_s}s]))"


@named("requests_each")
def requests_each(scope: Scope, times: Times) -> str:
    return _rate_by("endpoint", REQUESTS, scope.router(), times)


@named("share_by_worker")
def share_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.router()
    rate = _rate_by("worker", DECISIONS, braces, times)
    every = f"sum(rate({DECISIONS}{braces}[{times.rate_s}s])) > 0"
    share = f"{rate} / on () group_left () ({every})"
    return f"{share} {_busiest('worker', DECISIONS, braces, times)}"


@named("decisions_by_reason")
def decisions_by_reason(scope: Scope, times: Times) -> str:
    return _rate_by("reason", DECISIONS, scope.router(), times)


@named("l2_hit_share")
def l2_hit_share(_scope: Scope, times: Times) -> str:
    hits = _rate_by("pool", L2_HITS, "", times)
    return f"{hits} / ({_rate_by('pool', L2_LOOKUPS, '', times)} > 0)"


@named("l2_fill")
def l2_fill(_scope: Scope, _times: Times) -> str:
    return f"sum by (pool) ({L2_USED}) / (sum by (pool) ({L2_CAPACITY}) > 0)"


# -- what is scraped: asked once for a page, at one moment -----------------------------------------


@named("targets_known")
def targets_known(scope: Scope, _times: Times) -> str:
    return f"count by (job) (up{_scraped(scope)})"


@named("targets_up")
def targets_up(scope: Scope, _times: Times) -> str:
    return f"sum by (job) (up{_scraped(scope)})"


def _scraped(scope: Scope) -> str:
    return scope.engines(job_re="|".join(JOBS))


def last_up(scope: Scope, jobs: tuple[str, ...]) -> str:
    """When a target of these jobs last answered, to the minute, within a day. For jobs that are
    away: over thousands of living targets it would be dear."""
    if not set(jobs) <= set(JOBS):
        raise ValueError(f"{jobs} are not among {JOBS}")
    answered = f"timestamp(up{scope.engines(job_re='|'.join(jobs))} == 1)"
    return f"max by (job) (max_over_time({answered}[1d:1m]))"


def exported(metrics: tuple[str, ...], braces: str) -> str:
    """Which of these metrics exist now, as series with their name."""
    for metric in metrics:
        if not _NAME.fullmatch(metric):
            raise ValueError(f"{metric!r} is not the name of a metric")
    names = f'{{__name__=~"{"|".join(metrics)}"'
    inside = braces.strip("{}")
    return (
        f"count by (__name__) ({names},{inside}}})"
        if inside
        else f"count by (__name__) ({names}}})"
    )


def alerts(scope: Scope) -> str:
    """Those which fire; rules give every alert the label `endpoint`."""
    return f"ALERTS{scope.router(alertstate='firing')}"


def alerts_since(scope: Scope) -> str:
    """Since when, in epoch seconds, each alert's condition has held."""
    return f"ALERTS_FOR_STATE{scope.router()}"
