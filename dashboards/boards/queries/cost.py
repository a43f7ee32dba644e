"""Queries that the console multiplies by prices, looked up by the label `endpoint_name`."""

from __future__ import annotations

from dashboards.boards.queries import callers
from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    QUERIES,
    Query,
    Scope,
    Times,
    growth_query,
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


def _of_callers(metric: str, by: str = "endpoint", **labels: str) -> Query:
    return growth_query(lambda scope: scope.callers(**labels), metric, by=by)


def _of_workers(metric: str, **labels: str) -> Query:
    return growth_query(lambda scope: scope.engines(**labels), metric, by=_BY)


def _cached(source: str, *older: str) -> Query:
    """Cached tokens of a tier; `older`: counters of workers that do not report sources."""
    reported = _of_workers(n.CACHED, source_re=source)

    def query(scope: Scope, times: Times) -> str:
        if not older:
            return reported(scope, times)
        counters = growth_query(Scope.engines, *older, by=_BY)(scope, times)
        newer = _of_workers(n.CACHED)(scope, times)
        return f"{reported(scope, times)} or ({counters} unless on ({_BY}) {newer})"

    return query


# Use of each endpoint over a range. Hits beyond the device may include L1; they are assigned like
# sources that the engine cannot name.
USAGE: dict[str, Query] = {
    "usage_computed": _of_callers(n.ROUTER_COMPUTED),
    "usage_cached": _of_callers(n.ROUTER_CACHED),
    "usage_generated": _of_callers(n.ROUTER_COMPLETION),
    "usage_requests": _of_callers(n.REQUESTS, code_re="2.."),
    "usage_prefill": _of_workers(f"{n.PREFILL_TIME}_sum"),
    "usage_decode": _of_workers(f"{n.DECODE_TIME}_sum"),
    "usage_load": _of_workers(n.LOAD_TIME),
    "usage_l2_bytes": _of_workers(n.READ, tier_re="[1-9].*"),
    "usage_device": _cached("device", n.PREFIX_HITS, n.PREFIX_HITS_OLD),
    "usage_l1": _cached("host"),
    "usage_l2": _cached("disk|p2p|external_unspecified", n.EXTERNAL_HITS),
}
QUERIES.update(USAGE)
register_query("usage_misses")(_of_callers(n.ROUTER_COMPUTED, "endpoint, cause"))
