"""What routers say: requests, decisions, shares. Pure."""

from __future__ import annotations

from dashboards.queries.names import DECISIONS, REQUESTS, ROUTER_TTFT
from dashboards.queries.shape import Scope, Times, busiest, named, rate_by


@named("requests_by_endpoint")
def requests_by_endpoint(scope: Scope, times: Times) -> str:
    braces = scope.router()
    rate = rate_by("endpoint", REQUESTS, braces, times)
    return f"{rate} {busiest('endpoint', REQUESTS, braces, times)}"


@named("requests_by_outcome")
def requests_by_outcome(scope: Scope, times: Times) -> str:
    """`outcome` is the first digit of the status code."""
    rate = f"rate({REQUESTS}{scope.router()}[{times.rate_s}s])"
    return f'sum by (outcome) (label_replace({rate}, "outcome", "$1", "code", "(.).*"))'


@named("ttft_by_cache")
def ttft_by_cache(scope: Scope, times: Times) -> str:
    """The median the router saw, apart for prompts found in a cache not at all, partly, wholly."""
    buckets = rate_by("le, cache", f"{ROUTER_TTFT}_bucket", scope.router(), times)
    return f"histogram_quantile(0.5, {buckets})"


@named("requests_total")
def requests_total(scope: Scope, times: Times) -> str:
    return f"sum(rate({REQUESTS}{scope.router()}[{times.rate_s}s]))"


@named("requests_each")
def requests_each(scope: Scope, times: Times) -> str:
    return rate_by("endpoint", REQUESTS, scope.router(), times)


@named("share_by_worker")
def share_by_worker(scope: Scope, times: Times) -> str:
    braces = scope.router()
    rate = rate_by("worker", DECISIONS, braces, times)
    every = f"sum(rate({DECISIONS}{braces}[{times.rate_s}s])) > 0"
    share = f"{rate} / on () group_left () ({every})"
    return f"{share} {busiest('worker', DECISIONS, braces, times)}"


@named("decisions_by_reason")
def decisions_by_reason(scope: Scope, times: Times) -> str:
    return rate_by("reason", DECISIONS, scope.decisions(), times)
