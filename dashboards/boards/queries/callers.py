"""Cache hit rate, TTFT and tokens of callers' requests, as counted by routers.

A router tells the console's own requests (benchmarks, cache proof, calibrations) from those of
callers; workers count both. Of a single worker only its own counts are known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dashboards.boards.queries import cache, engines
from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    QUERIES,
    Query,
    Scope,
    Times,
    busiest_query,
    label_vector,
    of_callers,
    quantile_query,
    rate,
    rate_by,
    ratio,
    sum_by,
)

_ENDPOINT = "endpoint"
_TARGET_S = "1|1.0"  # bucket of the TTFT target, as formatted by Go and by Python


def hit_rate(scope: Scope, times: Times, by: str = "") -> str:
    """Cached prompt tokens, of those that the miss ledger accounts for."""
    counters = (n.ROUTER_CACHED, n.ROUTER_COMPUTED)
    cached, computed = (rate_by(by, metric, scope.callers(), times) for metric in counters)
    return f"{cached} / (({cached} + {computed}) > 0)"


def count(metric: str, scope: Scope, times: Times, **labels: str) -> str:
    """Growth of a router's counter by `endpoint_name`, the label of worker metrics."""
    grown = rate(metric, scope.callers(**labels), times)
    renamed = f'label_replace({grown}, "endpoint_name", "$1", "{_ENDPOINT}", "(.+)")'
    return sum_by("endpoint_name", renamed)


def _share_by_source(scope: Scope, times: Times) -> str:
    """Prompt tokens by source as shares of 1: what callers had cached, split as the workers' tiers
    served it, and the rest.
    """
    hits = hit_rate(scope, times)
    tiers, total = (make("", scope, times) for make in (cache.cached_by_tier, cache.cached_total))
    computed = label_vector(f"(1 - {hits})", "tier", "computed")
    split = f"{tiers} / on () group_left () ({total} > 0)"
    return f"{split} * on () group_left () ({hits}) or {computed}"


def cached_by_tier(scope: Scope, times: Times) -> str:
    """Callers' cached tokens by `endpoint_name` and `tier`, split as the workers' tiers served."""
    tiers = cache.cached_by_tier("endpoint_name", scope, times)
    total = cache.cached_total("endpoint_name", scope, times)
    every = f"on (endpoint_name) group_left () ({total} > 0)"
    mine = f"on (endpoint_name) group_left () {count(n.ROUTER_CACHED, scope, times)}"
    return f"{tiers} / {every} * {mine}"


def _ttft(percent: float, by: str = "") -> Query:
    return quantile_query(percent, (n.ROUTER_TTFT,), Scope.callers, by)


def _on_time(metric: str, braces: Callable[..., str], by: str = "") -> Query:
    def query(scope: Scope, times: Times) -> str:
        good = rate_by(by, f"{metric}_bucket", braces(scope, le_re=_TARGET_S), times)
        return ratio(good, rate_by(by, f"{metric}_count", braces(scope), times))

    return query


def _busiest(query: Query, metric: str) -> Query:
    return busiest_query(query, _ENDPOINT, metric, Scope.callers)


_STREAMED = f"{n.ROUTER_TTFT}_count"
_hits_each = partial(hit_rate, by=_ENDPOINT)
QUERIES.update(
    {
        "reuse": of_callers(hit_rate, cache.reuse("")),
        "reuse_each": _hits_each,
        "reuse_by_endpoint": _busiest(_hits_each, n.REQUESTS),
        "prompt_share_by_source": of_callers(_share_by_source, cache.share_by_source),
        **{
            f"ttft_p{percent}": of_callers(
                _ttft(percent), quantile_query(percent, (n.TTFT,), Scope.engines)
            )
            for percent in engines.PERCENTS
        },
        "ttft_p90_each": _ttft(90, _ENDPOINT),
        "ttft_p95_by_endpoint": _busiest(_ttft(95, _ENDPOINT), _STREAMED),
        "on_time": of_callers(
            _on_time(n.ROUTER_TTFT, Scope.callers), _on_time(n.TTFT, Scope.engines)
        ),
        "on_time_by_endpoint": _busiest(
            _on_time(n.ROUTER_TTFT, Scope.callers, _ENDPOINT), _STREAMED
        ),
    }
)
