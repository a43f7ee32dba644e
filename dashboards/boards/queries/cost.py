"""Queries that the console multiplies by prices, looked up by the label `endpoint_name`."""

from __future__ import annotations

from dashboards.boards.queries import callers
from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    Query,
    Scope,
    Times,
    highest,
    rate,
    rate_by,
    register_query,
    sum_by,
)

_BY = "endpoint_name"
_MILLION, _THOUSAND, _HOUR_S = "1e6", "1e3", 3600
_PROMPT = (n.ROUTER_CACHED, n.ROUTER_COMPUTED)


def workers(scope: Scope) -> str:
    """Count known workers, up or down: a starting worker occupies its machine, too."""
    return f"count by ({_BY}) (up{scope.engines(job='vllm')})"


def _top(scope: Scope, times: Times) -> str:
    return highest(_BY, "up", scope.engines(job="vllm"), times)


@register_query("workers_by_endpoint")
def workers_by_endpoint(scope: Scope, times: Times) -> str:
    return f"{workers(scope)} {_top(scope, times)}"


@register_query("idle_workers_by_endpoint")
def idle_workers_by_endpoint(scope: Scope, times: Times) -> str:
    busy = f"count by ({_BY}) ({n.RUNNING}{scope.engines()} > 0)"
    return f"({workers(scope)} - ({busy} or {workers(scope)} * 0)) {_top(scope, times)}"


@register_query("idle_share_by_endpoint")
def idle_share_by_endpoint(scope: Scope, times: Times) -> str:
    busy = f"count by ({_BY}) ({n.RUNNING}{scope.engines()} > 0)"
    return f"(1 - ({busy} or {workers(scope)} * 0) / {workers(scope)}) {_top(scope, times)}"


def _worker_hours(metrics: tuple[str, ...], per: str, phase: str = "", **labels: str) -> Query:
    """Worker hours per `per` units of these counters of callers' requests; with `phase`, only the
    part of prefill or decode in the requests' time.
    """

    def query(scope: Scope, times: Times) -> str:
        made = " + ".join(callers.count(metric, scope, times, **labels) for metric in metrics)
        hours = f"{workers(scope)} / {_HOUR_S}"
        if phase:
            spent = [
                rate_by(_BY, f"{metric}_sum", scope.engines(), times)
                for metric in (phase, n.PREFILL_TIME, n.DECODE_TIME)
            ]
            hours += f" * ({spent[0]} / (({spent[1]} + {spent[2]}) > 0))"
        return f"{hours} / (({made}) > 0) * {per} {_top(scope, times)}"

    return query


register_query("worker_hours_per_million_output")(
    _worker_hours((n.ROUTER_COMPLETION,), _MILLION, n.DECODE_TIME)
)
register_query("worker_hours_per_million_input")(_worker_hours(_PROMPT, _MILLION, n.PREFILL_TIME))
register_query("worker_hours_per_million_tokens")(
    _worker_hours((n.ROUTER_COMPLETION, *_PROMPT), _MILLION)
)
register_query("worker_hours_per_thousand_requests")(
    _worker_hours((n.REQUESTS,), _THOUSAND, code_re="2..")
)


@register_query("reused_tokens_hour")
def reused_tokens_hour(scope: Scope, times: Times) -> str:
    return f"{callers.count(n.ROUTER_CACHED, scope, times)} * {_HOUR_S} {_top(scope, times)}"


@register_query("reused_tokens_hour_by_tier")
def reused_tokens_hour_by_tier(scope: Scope, times: Times) -> str:
    return f"{callers.cached_by_tier(scope, times)} * {_HOUR_S}"


@register_query("reused_tokens_day_by_tier")
def reused_tokens_day_by_tier(scope: Scope, _times: Times) -> str:
    grown = f"increase({n.CACHED}{scope.engines()}[1d])"
    return f"sum by (source) ({grown})"


@register_query("prefill_seconds_per_token")
def prefill_seconds_per_token(scope: Scope, times: Times) -> str:
    """An upper bound of a token's cost: it includes the fixed cost of each step."""
    spent = rate_by("", f"{n.PREFILL_TIME}_sum", scope.engines(), times)
    computed = rate_by("", f"{n.COMPUTED_TOKENS}_sum", scope.engines(), times)
    return f"{spent} / ({computed} > 0)"


@register_query("prefill_seconds_avoided")
def prefill_seconds_avoided(scope: Scope, times: Times) -> str:
    """Prefill seconds avoided per second, an upper bound by the same ratio."""
    reused = sum_by("", rate(n.CACHED_ALL, scope.engines(), times))
    return f"{reused} * {prefill_seconds_per_token(scope, times)}"
