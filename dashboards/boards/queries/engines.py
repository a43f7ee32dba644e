"""Queries of worker metrics for vLLM 0.11 to 0.32; renamed metrics are queried by both names."""

from __future__ import annotations

from collections.abc import Callable

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    Query,
    Scope,
    Times,
    busiest,
    first_present,
    highest,
    join_labels,
    mean,
    quantile,
    rate,
    rate_by,
    ratio,
    register_query,
    sum_by,
)

PERCENTS = (50, 90, 95, 99)
TARGET_S = "1|1.0"  # bucket of the TTFT target, as formatted by Go and by Python
PHASES = {"queue": n.QUEUE_TIME, "prefill": n.PREFILL_TIME, "decode": n.DECODE_TIME}
_ENDPOINT, _POD = "endpoint_name", "pod"
# Suffix of a query's name: for all workers together, or per worker.
_ALL, _EACH_ENDPOINT, _EACH_WORKER = ("", ""), ("_by_endpoint", _ENDPOINT), ("_by_worker", _POD)
_HISTOGRAMS = {
    "ttft": (n.TTFT,),
    "itl": (n.ITL, n.ITL_OLD),
    "e2e": (n.E2E,),
    "prompt_length": (n.PROMPT_LENGTH,),
}
_COUNTERS = {
    "prompt_tokens": (n.PROMPT, (_ALL, _EACH_ENDPOINT)),
    "generated_tokens": (n.GENERATED, (_ALL, _EACH_ENDPOINT, _EACH_WORKER)),
    "finished": (n.FINISHED, (_EACH_ENDPOINT,)),
    "preemptions": (n.PREEMPTIONS, (_EACH_WORKER,)),
    "flops": (n.FLOPS, (_EACH_WORKER,)),
}
_GAUGES = {
    "running": (n.RUNNING, (_ALL, _EACH_WORKER)),
    "waiting": (n.WAITING, (_ALL, _EACH_ENDPOINT)),
}


def _quantile(share: float, metrics: tuple[str, ...], by: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        asked = quantile(share, by, metrics, scope.engines(), times)
        if not by:
            return asked
        return f"{asked} {busiest(by, f'{metrics[0]}_count', scope.engines(), times)}"

    return query


def _counter(metric: str, by: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        asked = rate_by(by, metric, scope.engines(), times)
        return f"{asked} {busiest(by, metric, scope.engines(), times)}" if by else asked

    return query


def _gauge(metric: str, by: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        asked = sum_by(by, f"{metric}{scope.engines()}")
        return f"{asked} {highest(by, metric, scope.engines(), times)}" if by else asked

    return query


def _of_metric(metric: str, make: Callable[[str, str, Times], str]) -> Query:
    def query(scope: Scope, times: Times) -> str:
        return make(metric, scope.engines(), times)

    return query


for _name, _metrics in _HISTOGRAMS.items():
    for _percent in PERCENTS:
        register_query(f"{_name}_p{_percent}")(_quantile(_percent / 100, _metrics, ""))
for _end, _by in (_EACH_ENDPOINT, _EACH_WORKER):
    register_query(f"ttft_p95{_end}")(_quantile(0.95, _HISTOGRAMS["ttft"], _by))
for _families, _make in ((_COUNTERS, _counter), (_GAUGES, _gauge)):
    for _name, (_metric, _groups) in _families.items():
        for _end, _by in _groups:
            register_query(f"{_name}{_end}")(_make(_metric, _by))
for _name, _metric in PHASES.items():
    register_query(f"phase_{_name}")(_of_metric(_metric, mean))


@register_query("endpoints_up")
def endpoints_up(scope: Scope, _times: Times) -> str:
    up = f"up{scope.engines(job='vllm')} == 1"
    return f"count(count by (namespace, endpoint_name) ({up})) or vector(0)"


@register_query("workers_up")
def workers_up(scope: Scope, _times: Times) -> str:
    return f"sum(up{scope.engines(job='vllm')})"


@register_query("workers_known")
def workers_known(scope: Scope, _times: Times) -> str:
    return f"count(up{scope.engines(job='vllm')})"


@register_query("workers_up_by_endpoint")
def workers_up_by_endpoint(scope: Scope, times: Times) -> str:
    braces = scope.engines(job="vllm")
    return f"sum by (endpoint_name) (up{braces}) {highest(_ENDPOINT, 'up', braces, times)}"


@register_query("on_time")
def on_time(scope: Scope, times: Times) -> str:
    good = rate_by("", f"{n.TTFT}_bucket", scope.engines(le_re=TARGET_S), times)
    return ratio(good, rate_by("", f"{n.TTFT}_count", scope.engines(), times))


@register_query("on_time_by_endpoint")
def on_time_by_endpoint(scope: Scope, times: Times) -> str:
    good = rate_by(_ENDPOINT, f"{n.TTFT}_bucket", scope.engines(le_re=TARGET_S), times)
    every = rate_by(_ENDPOINT, f"{n.TTFT}_count", scope.engines(), times)
    return f"{ratio(good, every)} {busiest(_ENDPOINT, f'{n.TTFT}_count', scope.engines(), times)}"


@register_query("ttft_p90_each")
def ttft_p90_each(scope: Scope, times: Times) -> str:
    return quantile(0.9, _ENDPOINT, (n.TTFT,), scope.engines(), times)


@register_query("finished_by_reason")
def finished_by_reason(scope: Scope, times: Times) -> str:
    return rate_by("finished_reason", n.FINISHED, scope.engines(), times)


@register_query("rejected_by_reason")
def rejected_by_reason(scope: Scope, times: Times) -> str:
    return rate_by("reason", n.REJECTED, scope.engines(), times)


@register_query("waiting_by_reason")
def waiting_by_reason(scope: Scope, times: Times) -> str:
    """Of the workers with the longest queues; before 0.24 without the reason."""
    braces = scope.engines()
    told = f"sum by (pod, reason) ({n.WAITING_WHY}{braces})"
    untold = f"sum by (pod) ({n.WAITING}{braces}) unless on (pod) {n.WAITING_WHY}{braces}"
    every = f"({told} or {untold}) {highest(_POD, n.WAITING, braces, times)}"
    return join_labels(every, "worker_reason", "pod", "reason")


@register_query("kv_usage_by_worker")
def kv_usage_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.engines()
    used = first_present(f"{n.KV_USAGE}{braces}", f"{n.KV_USAGE_OLD}{braces}")
    return f"max by (pod) ({used}) {_most_kv(_POD, braces, times)}"


@register_query("kv_usage_by_endpoint")
def kv_usage_by_endpoint(scope: Scope, times: Times) -> str:
    braces = scope.engines()
    used = first_present(f"{n.KV_USAGE}{braces}", f"{n.KV_USAGE_OLD}{braces}")
    return f"max by (endpoint_name) ({used}) {_most_kv(_ENDPOINT, braces, times)}"


def _most_kv(by: str, braces: str, times: Times) -> str:
    """Rank by requests, because the gauge was renamed."""
    return highest(by, n.RUNNING, braces, times)


@register_query("kv_usage_by_engine")
def kv_usage_by_engine(scope: Scope, times: Times) -> str:
    braces = scope.engines()
    used = first_present(f"{n.KV_USAGE}{braces}", f"{n.KV_USAGE_OLD}{braces}")
    every = f"max by (pod, engine) ({used}) {_most_kv(_POD, braces, times)}"
    return join_labels(every, "worker_engine", "pod", "engine")


@register_query("step_tokens")
def step_tokens(scope: Scope, times: Times) -> str:
    return mean(n.STEP_TOKENS, scope.engines(), times)


@register_query("prompt_lengths")
def prompt_lengths(scope: Scope, times: Times) -> str:
    return _lengths(n.PROMPT_LENGTH, scope, times)


@register_query("answer_lengths")
def answer_lengths(scope: Scope, times: Times) -> str:
    return _lengths(n.ANSWER_LENGTH, scope, times)


def _lengths(metric: str, scope: Scope, times: Times) -> str:
    """Requests by length in cumulative buckets; charts.styled_series separates them."""
    return f"sum by (le) (increase({metric}_bucket{scope.engines()}[{times.rate_s}s]))"


@register_query("http_by_status")
def http_by_status(scope: Scope, times: Times) -> str:
    braces = scope.engines(job="vllm", handler_re="/v1/.*")
    return rate_by("status", n.HTTP_REQUESTS, braces, times)


@register_query("flops_per_token")
def flops_per_token(scope: Scope, times: Times) -> str:
    computed = rate_by("", n.BY_SOURCE, scope.engines(source="local_compute"), times)
    made = rate_by("", n.GENERATED, scope.engines(), times)
    flops = rate_by("", n.FLOPS, scope.engines(), times)
    return f"{flops} / (({computed} + {made}) > 0)"


@register_query("prompt_skew")
def prompt_skew(scope: Scope, times: Times) -> str:
    """Imbalance of the workers' shares of prompt tokens; 0 when equal."""
    each = f"sum by (pod) ({rate(n.PROMPT, scope.engines(), times)})"
    return f"stddev({each}) / (avg({each}) > 0)"
