"""Queries of routers: requests, decisions, load shares and expected cache contents."""

from __future__ import annotations

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    Scope,
    Times,
    busiest,
    highest,
    join_labels,
    quantile,
    rate,
    rate_by,
    register_query,
    share,
)

_FALLBACKS = "fallback.*"


@register_query("requests_by_endpoint")
def requests_by_endpoint(scope: Scope, times: Times) -> str:
    braces = scope.router()
    asked = rate_by("endpoint", n.REQUESTS, braces, times)
    return f"{asked} {busiest('endpoint', n.REQUESTS, braces, times)}"


@register_query("requests_by_outcome")
def requests_by_outcome(scope: Scope, times: Times) -> str:
    """`outcome` is the first digit of the status code."""
    asked = rate(n.REQUESTS, scope.router(), times)
    return f'sum by (outcome) (label_replace({asked}, "outcome", "$1", "code", "(.).*"))'


@register_query("requests_total")
def requests_total(scope: Scope, times: Times) -> str:
    return f"sum({rate(n.REQUESTS, scope.router(), times)})"


@register_query("requests_each")
def requests_each(scope: Scope, times: Times) -> str:
    return rate_by("endpoint", n.REQUESTS, scope.router(), times)


@register_query("failed_share")
def failed_share(scope: Scope, times: Times) -> str:
    failed = rate_by("", n.REQUESTS, scope.router(code_re="5.."), times)
    return share(failed, requests_total(scope, times))


@register_query("failed_share_by_endpoint")
def failed_share_by_endpoint(scope: Scope, times: Times) -> str:
    failed = rate_by("endpoint", n.REQUESTS, scope.router(code_re="5.."), times)
    part = share(failed, requests_each(scope, times))
    return f"{part} {busiest('endpoint', n.REQUESTS, scope.router(), times)}"


@register_query("errors_by_reason")
def errors_by_reason(scope: Scope, times: Times) -> str:
    return rate_by("reason", n.ERRORS, scope.router(), times)


@register_query("retries_by_reason")
def retries_by_reason(scope: Scope, times: Times) -> str:
    return rate_by("reason", n.RETRIES, scope.router(), times)


@register_query("ttft_by_cache")
def ttft_by_cache(scope: Scope, times: Times) -> str:
    """Median TTFT at the router for prompts cached not at all, partly and fully."""
    return quantile(0.5, "cache", (n.ROUTER_TTFT,), scope.router(), times)


@register_query("ttft_p95_by_cache")
def ttft_p95_by_cache(scope: Scope, times: Times) -> str:
    return quantile(0.95, "cache", (n.ROUTER_TTFT,), scope.router(), times)


@register_query("share_by_worker")
def share_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.router()
    asked = rate_by("worker", n.DECISIONS, scope.decisions(), times)
    every = f"sum({rate(n.DECISIONS, braces, times)}) > 0"
    part = f"{asked} / on () group_left () ({every})"
    return f"{part} {busiest('worker', n.DECISIONS, braces, times)}"


@register_query("decisions_by_reason")
def decisions_by_reason(scope: Scope, times: Times) -> str:
    return rate_by("reason", n.DECISIONS, scope.decisions(), times)


@register_query("imbalance")
def imbalance(scope: Scope, times: Times) -> str:
    """Requests of the busiest worker divided by the mean; 1 when balanced."""
    each = rate_by("worker", n.DECISIONS, scope.router(), times)
    return f"max({each}) / (avg({each}) > 0)"


@register_query("fallback_share")
def fallback_share(scope: Scope, times: Times) -> str:
    fallen = rate_by("", n.DECISIONS, scope.decisions(reason_re=_FALLBACKS), times)
    return share(fallen, rate_by("", n.DECISIONS, scope.decisions(), times))


@register_query("fallback_share_by_endpoint")
def fallback_share_by_endpoint(scope: Scope, times: Times) -> str:
    fallen = rate_by("endpoint", n.DECISIONS, scope.router(reason_re=_FALLBACKS), times)
    part = share(fallen, rate_by("endpoint", n.DECISIONS, scope.router(), times))
    return f"{part} {busiest('endpoint', n.DECISIONS, scope.router(), times)}"


@register_query("match_ratio_by_strategy")
def match_ratio_by_strategy(scope: Scope, times: Times) -> str:
    return quantile(0.5, "strategy", (n.MATCH_RATIO,), scope.router(), times)


@register_query("kept_promises")
def kept_promises(scope: Scope, times: Times) -> str:
    """Cached tokens reported by workers per token expected by the router; 1 when exact."""
    kept, foreseen = (
        rate_by("", metric, scope.router(), times)
        for metric in (n.ROUTER_CACHED, n.ROUTER_PREDICTED)
    )
    return share(kept, foreseen)


@register_query("overhead_p99_by_strategy")
def overhead_p99_by_strategy(scope: Scope, times: Times) -> str:
    return quantile(0.99, "strategy", (n.OVERHEAD,), scope.router(), times)


@register_query("queued_p95")
def queued_p95(scope: Scope, times: Times) -> str:
    return quantile(0.95, "", (n.QUEUED_FOR,), scope.router(), times)


@register_query("queue_depth")
def queue_depth(scope: Scope, _times: Times) -> str:
    return f"sum({n.QUEUE_DEPTH}{scope.router()})"


@register_query("queue_limit")
def queue_limit(scope: Scope, _times: Times) -> str:
    return f"sum({n.QUEUE_LIMIT}{scope.router()}) > 0"


@register_query("workers_healthy")
def workers_healthy(scope: Scope, _times: Times) -> str:
    return f"sum({n.WORKER_UP}{scope.decisions()})"


@register_query("workers_healthy_by_endpoint")
def workers_healthy_by_endpoint(scope: Scope, times: Times) -> str:
    healthy = f"sum by (endpoint) ({n.WORKER_UP}{scope.router()})"
    return f"{healthy} {busiest('endpoint', n.REQUESTS, scope.router(), times)}"


@register_query("circuits_open")
def circuits_open(scope: Scope, _times: Times) -> str:
    return f"sum({n.CIRCUIT}{scope.decisions()} > bool 0)"


@register_query("in_flight_by_worker")
def in_flight_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.decisions()
    asked = f"sum by (worker) ({n.IN_FLIGHT}{braces})"
    return f"{asked} {highest('worker', n.IN_FLIGHT, braces, times)}"


@register_query("index_blocks_by_worker")
def index_blocks_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.decisions()
    held = f"sum by (worker) ({n.INDEX_BLOCKS}{braces})"
    return f"{held} {highest('worker', n.INDEX_BLOCKS, braces, times)}"


@register_query("index_lag_by_worker")
def index_lag_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.decisions()
    late = f"max by (worker) ({n.INDEX_LAG}{braces})"
    return f"{late} {highest('worker', n.INDEX_LAG, braces, times)}"


@register_query("kv_fallbacks_by_reason")
def kv_fallbacks_by_reason(scope: Scope, times: Times) -> str:
    return rate_by("reason", n.KV_FALLBACKS, scope.router(), times)


@register_query("kv_recoveries_by_reason")
def kv_recoveries_by_reason(scope: Scope, times: Times) -> str:
    return rate_by("reason", n.KV_RECOVERIES, scope.router(), times)


@register_query("decisions_by_strategy_reason")
def decisions_by_strategy_reason(scope: Scope, times: Times) -> str:
    asked = rate_by("strategy, reason", n.DECISIONS, scope.decisions(), times)
    return join_labels(asked, "strategy_reason", "strategy", "reason")
