"""Queries of routers: requests, decisions, load shares and expected cache contents."""

from __future__ import annotations

from collections.abc import Callable

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    QUERIES,
    Query,
    Scope,
    Times,
    busiest,
    counter_query,
    gauge_query,
    growth_query,
    highest,
    join_labels,
    quantile_query,
    rate,
    rate_by,
    register_query,
    share,
    share_query,
    worker_query,
)

_FALLBACKS = "fallback.*"

QUERIES.update(
    {
        "requests_total": counter_query(n.REQUESTS, Scope.callers),
        "requests_of_console": lambda scope, times: rate_by(
            "", n.REQUESTS, scope.router(traffic="console"), times
        ),
        "requests_each": counter_query(n.REQUESTS, Scope.callers, "endpoint"),
        "requests_by_endpoint": counter_query(n.REQUESTS, Scope.callers, "endpoint", top=True),
        "errors_by_reason": counter_query(n.ERRORS, Scope.router, "reason"),
        "retries_by_reason": counter_query(n.RETRIES, Scope.router, "reason"),
        "decisions_by_reason": counter_query(n.DECISIONS, Scope.decisions, "reason"),
        "kv_fallbacks_by_reason": counter_query(n.KV_FALLBACKS, Scope.router, "reason"),
        "computed_tokens_by_cause": counter_query(n.ROUTER_COMPUTED, Scope.callers, "cause"),
        "kv_recoveries_by_reason": counter_query(n.KV_RECOVERIES, Scope.router, "reason"),
        # TTFT at the router for prompts cached not at all, partly and fully.
        "ttft_by_cache": quantile_query(50, (n.ROUTER_TTFT,), Scope.callers, "cache"),
        "ttft_p95_by_cache": quantile_query(95, (n.ROUTER_TTFT,), Scope.callers, "cache"),
        "match_ratio_by_strategy": quantile_query(50, (n.MATCH_RATIO,), Scope.router, "strategy"),
        "overhead_p99_by_strategy": quantile_query(99, (n.OVERHEAD,), Scope.router, "strategy"),
        "queued_p95": quantile_query(95, (n.QUEUED_FOR,), Scope.router),
        # Cached tokens reported by workers per token expected by the router; 1 when exact.
        "kept_promises": share_query(n.ROUTER_CACHED, n.ROUTER_PREDICTED, Scope.callers),
        "happened_routed": growth_query(Scope.decisions, n.DECISIONS),
        "happened_answered": growth_query(Scope.callers, n.REQUESTS),
        "queue_depth": gauge_query(n.QUEUE_DEPTH, Scope.router),
        "workers_healthy": worker_query(n.WORKER_UP),
        "in_flight_by_worker": gauge_query(n.IN_FLIGHT, Scope.decisions, "worker", top=True),
        "index_blocks_by_worker": worker_query(n.INDEX_BLOCKS, "worker", top=True),
    }
)


def _labelled_share(metric: str, braces: Callable[..., str], by: str = "", **labels: str) -> Query:
    """Share of a counter's growth with these labels; `by` a label only of the busiest."""

    def query(scope: Scope, times: Times) -> str:
        every = rate_by(by, metric, braces(scope), times)
        part = share(rate_by(by, metric, braces(scope, **labels), times), every)
        return f"{part} {busiest(by, metric, braces(scope), times)}" if by else part

    return query


QUERIES.update(
    {
        "failed_share": _labelled_share(n.REQUESTS, Scope.callers, code_re="5.."),
        "failed_share_by_endpoint": _labelled_share(
            n.REQUESTS, Scope.callers, "endpoint", code_re="5.."
        ),
        "fallback_share": _labelled_share(n.DECISIONS, Scope.decisions, reason_re=_FALLBACKS),
        "fallback_share_by_endpoint": _labelled_share(
            n.DECISIONS, Scope.router, "endpoint", reason_re=_FALLBACKS
        ),
    }
)


@register_query("requests_by_outcome")
def requests_by_outcome(scope: Scope, times: Times) -> str:
    """`outcome` is the first digit of the status code."""
    requests = rate(n.REQUESTS, scope.callers(), times)
    return f'sum by (outcome) (label_replace({requests}, "outcome", "$1", "code", "(.).*"))'


@register_query("share_by_worker")
def share_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.router()
    decisions = rate_by("worker", n.DECISIONS, scope.decisions(), times)
    every = f"sum({rate(n.DECISIONS, braces, times)}) > 0"
    part = f"{decisions} / on () group_left () ({every})"
    return f"{part} {busiest('worker', n.DECISIONS, braces, times)}"


@register_query("imbalance")
def imbalance(scope: Scope, times: Times) -> str:
    """Requests of the busiest worker divided by the mean; 1 when balanced."""
    each = rate_by("worker", n.DECISIONS, scope.router(), times)
    return f"max({each}) / (avg({each}) > 0)"


@register_query("queue_limit")
def queue_limit(scope: Scope, _times: Times) -> str:
    return f"sum({n.QUEUE_LIMIT}{scope.router()}) > 0"


@register_query("workers_healthy_by_endpoint")
def workers_healthy_by_endpoint(scope: Scope, times: Times) -> str:
    healthy = worker_query(n.WORKER_UP, "endpoint")(scope, times)
    return f"{healthy} {busiest('endpoint', n.REQUESTS, scope.callers(), times)}"


@register_query("circuits_open")
def circuits_open(scope: Scope, _times: Times) -> str:
    each = f"max by (namespace, endpoint, worker) ({n.CIRCUIT}{scope.decisions()})"
    return f"sum({each} > bool 0)"


@register_query("index_lag_by_worker")
def index_lag_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.decisions()
    late = f"max by (worker) ({n.INDEX_LAG}{braces})"
    return f"{late} {highest('worker', n.INDEX_LAG, braces, times)}"


@register_query("decisions_by_strategy_reason")
def decisions_by_strategy_reason(scope: Scope, times: Times) -> str:
    decisions = rate_by("strategy, reason", n.DECISIONS, scope.decisions(), times)
    return join_labels(decisions, "strategy_reason", "strategy", "reason")
