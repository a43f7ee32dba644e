"""What the console multiplies by a price: workers and tokens of each endpoint. Pure.

Prometheus knows no price; every answer keeps the label `endpoint_name`, by which the console finds
what a worker of it costs, or what a token found in a cache saves.
"""

from __future__ import annotations

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.cache import reused_parts, sum_by_tier
from dashboards.boards.queries.promql import (
    Query,
    Scope,
    Times,
    highest,
    named,
    rate,
    rate_by,
    sum_by,
)

_BY = "endpoint_name"
_MILLION, _THOUSAND, _HOUR_S = "1e6", "1e3", 3600


def workers(scope: Scope) -> str:
    """Known to Prometheus, up or not: a starting worker holds its machine, too."""
    return f"count by ({_BY}) (up{scope.engines(job='vllm')})"


def _top(scope: Scope, times: Times) -> str:
    return highest(_BY, "up", scope.engines(job="vllm"), times)


@named("workers_by_endpoint")
def workers_by_endpoint(scope: Scope, times: Times) -> str:
    return f"{workers(scope)} {_top(scope, times)}"


@named("idle_workers_by_endpoint")
def idle_workers_by_endpoint(scope: Scope, times: Times) -> str:
    busy = f"count by ({_BY}) ({n.RUNNING}{scope.engines()} > 0)"
    return f"({workers(scope)} - ({busy} or {workers(scope)} * 0)) {_top(scope, times)}"


@named("idle_share_by_endpoint")
def idle_share_by_endpoint(scope: Scope, times: Times) -> str:
    busy = f"count by ({_BY}) ({n.RUNNING}{scope.engines()} > 0)"
    return f"(1 - ({busy} or {workers(scope)} * 0) / {workers(scope)}) {_top(scope, times)}"


def _worker_hours(metrics: tuple[str, ...], per: str) -> Query:
    """For so many (`per`) of what these counted."""

    def query(scope: Scope, times: Times) -> str:
        made = " + ".join(rate_by(_BY, metric, scope.engines(), times) for metric in metrics)
        return f"{workers(scope)} / {_HOUR_S} / (({made}) > 0) * {per} {_top(scope, times)}"

    return query


named("worker_hours_per_million_output")(_worker_hours((n.GENERATED,), _MILLION))
named("worker_hours_per_million_input")(_worker_hours((n.PROMPT,), _MILLION))
named("worker_hours_per_million_tokens")(_worker_hours((n.GENERATED, n.PROMPT), _MILLION))
named("worker_hours_per_thousand_requests")(_worker_hours((f"{n.E2E}_count",), _THOUSAND))


@named("reused_tokens_hour")
def reused_tokens_hour(scope: Scope, times: Times) -> str:
    """An hour, at the rate of the moment."""
    reused = rate_by(_BY, n.CACHED_ALL, scope.engines(), times)
    return f"{reused} * {_HOUR_S} {_top(scope, times)}"


@named("reused_tokens_hour_by_tier")
def reused_tokens_hour_by_tier(scope: Scope, times: Times) -> str:
    return f"{sum_by_tier(_BY, reused_parts(scope, times))} * {_HOUR_S}"


@named("reused_tokens_day_by_tier")
def reused_tokens_day_by_tier(scope: Scope, _times: Times) -> str:
    """Within the day before each point."""
    grown = f"increase({n.CACHED}{scope.engines()}[1d])"
    return f"sum by (source) ({grown})"


@named("prefill_seconds_per_token")
def prefill_seconds_per_token(scope: Scope, times: Times) -> str:
    """More than a token costs: the fixed cost of every step is in it."""
    spent = rate_by("", f"{n.PREFILL_TIME}_sum", scope.engines(), times)
    computed = rate_by("", f"{n.COMPUTED_TOKENS}_sum", scope.engines(), times)
    return f"{spent} / ({computed} > 0)"


@named("prefill_seconds_avoided")
def prefill_seconds_avoided(scope: Scope, times: Times) -> str:
    """Each second, by that ratio: at most so much."""
    reused = sum_by("", rate(n.CACHED_ALL, scope.engines(), times))
    return f"{reused} * {prefill_seconds_per_token(scope, times)}"
