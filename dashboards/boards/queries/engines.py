"""Queries of worker metrics for vLLM 0.11 to 0.32; renamed metrics are queried by both names."""

from __future__ import annotations

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    QUERIES,
    Query,
    Scope,
    Times,
    busiest,
    counter_query,
    first_present,
    gauge_query,
    growth_query,
    highest,
    join_labels,
    mean_query,
    quantile,
    quantile_query,
    rate,
    rate_by,
    register_query,
)

PERCENTS = (50, 90, 95, 99)
PHASES = {"queue": n.QUEUE_TIME, "prefill": n.PREFILL_TIME, "decode": n.DECODE_TIME}
_ENDPOINT, _POD = "endpoint_name", "pod"
# Suffix of a query's name: for all workers together, or per worker.
_ALL, _EACH_ENDPOINT, _EACH_WORKER = ("", ""), ("_by_endpoint", _ENDPOINT), ("_by_worker", _POD)
_HISTOGRAMS = {"itl": (n.ITL, n.ITL_OLD), "e2e": (n.E2E,), "prompt_length": (n.PROMPT_LENGTH,)}
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


def _top_quantile(percent: float, metric: str, by: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        percentile_query = quantile(percent / 100, by, (metric,), scope.engines(), times)
        return f"{percentile_query} {busiest(by, f'{metric}_count', scope.engines(), times)}"

    return query


for _name, _metrics in _HISTOGRAMS.items():
    for _percent in PERCENTS:
        register_query(f"{_name}_p{_percent}")(quantile_query(_percent, _metrics, Scope.engines))
register_query("ttft_p95_by_worker")(_top_quantile(95, n.TTFT, _POD))
for _families, _make in ((_COUNTERS, counter_query), (_GAUGES, gauge_query)):
    for _name, (_metric, _groups) in _families.items():
        for _end, _by in _groups:
            register_query(f"{_name}{_end}")(_make(_metric, Scope.engines, _by, top=bool(_by)))
for _name, _metric in PHASES.items():
    register_query(f"phase_{_name}")(mean_query(_metric, Scope.engines))


def _of_vllm(scope: Scope) -> str:
    return scope.engines(job="vllm")


def _of_api(scope: Scope) -> str:
    return scope.engines(job="vllm", handler_re="/v1/.*")


def _lengths(metric: str) -> Query:
    """Requests by length in cumulative buckets; charts.series separates them."""

    def query(scope: Scope, times: Times) -> str:
        return f"sum by (le) (increase({metric}_bucket{scope.engines()}[{times.rate_s}s]))"

    return query


QUERIES.update(
    {
        "workers_up": gauge_query("up", _of_vllm),
        "workers_up_by_endpoint": gauge_query("up", _of_vllm, _ENDPOINT, top=True),
        "workers_known": lambda scope, _times: f"count(up{_of_vllm(scope)})",
        "rejected_by_reason": counter_query(n.REJECTED, Scope.engines, "reason"),
        "http_by_status": counter_query(n.HTTP_REQUESTS, _of_api, "status"),
        "step_tokens": mean_query(n.STEP_TOKENS, Scope.engines),
        "prompt_lengths": _lengths(n.PROMPT_LENGTH),
        "answer_lengths": _lengths(n.ANSWER_LENGTH),
    }
)


@register_query("endpoints_up")
def endpoints_up(scope: Scope, _times: Times) -> str:
    up = f"up{_of_vllm(scope)} == 1"
    return f"count(count by (namespace, endpoint_name) ({up})) or vector(0)"


def _kv_usage(by: str, top: str) -> Query:
    """KV usage of the groups `top` with the most requests; the gauge was renamed."""

    def query(scope: Scope, times: Times) -> str:
        braces = scope.engines()
        used = first_present(f"{n.KV_USAGE}{braces}", f"{n.KV_USAGE_OLD}{braces}")
        return f"max by ({by}) ({used}) {highest(top, n.RUNNING, braces, times)}"

    return query


for _end, _by in (_EACH_ENDPOINT, _EACH_WORKER):
    register_query(f"kv_usage{_end}")(_kv_usage(_by, _by))


@register_query("kv_usage_by_engine")
def kv_usage_by_engine(scope: Scope, times: Times) -> str:
    every = _kv_usage("pod, engine", _POD)(scope, times)
    return join_labels(every, "worker_engine", "pod", "engine")


@register_query("waiting_by_reason")
def waiting_by_reason(scope: Scope, times: Times) -> str:
    """Waiting requests of the workers with the longest queues; without reasons before vLLM 0.24."""
    braces = scope.engines()
    by_reason = f"sum by (pod, reason) ({n.WAITING_WHY}{braces})"
    untold = f"sum by (pod) ({n.WAITING}{braces}) unless on (pod) {n.WAITING_WHY}{braces}"
    every = f"({by_reason} or {untold}) {highest(_POD, n.WAITING, braces, times)}"
    return join_labels(every, "worker_reason", "pod", "reason")


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


QUERIES.update(
    {
        "happened_prompts": growth_query(Scope.engines, n.PROMPT),
        "happened_requests": growth_query(Scope.engines, n.FINISHED),
    }
)


@register_query("finished_by_reason")
def finished_by_reason(scope: Scope, times: Times) -> str:
    """Requests that callers cancel are the router's count: engines do not count those whose
    connection is closed. Of one worker, only its engine's counts are known.
    """
    counted = rate_by("finished_reason", n.FINISHED, scope.engines(), times)
    if scope.is_of_worker:
        return counted
    cancelled = rate_by("reason", n.ERRORS, scope.router(reason="client_cancelled"), times)
    renamed = f'label_replace({cancelled}, "finished_reason", "abort", "reason", ".*")'
    return f"sum by (finished_reason) ({renamed}) or {counted}"
