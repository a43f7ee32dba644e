"""Queries of LMCache, in process and in multi-process mode.

In process its names begin with `lmcache:`, or with `lmcache_` in OpenMetrics; the server's begin
with `lmcache_mp_` and exclude the others.
"""

from __future__ import annotations

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.promql import (
    QUERIES,
    Query,
    Scope,
    Times,
    first_present,
    quantile_query,
    rates,
    ratio,
    sum_by,
)


def both(name: str) -> tuple[str, str]:
    return f"lmcache:{name}", f"lmcache_{name}"


def _grown(metrics: tuple[str, ...], scope: Scope, times: Times) -> str:
    return sum_by("", rates(metrics, scope.engines(), times))


def _ratio(part: tuple[str, ...], whole: tuple[str, ...]) -> Query:
    def query(scope: Scope, times: Times) -> str:
        return ratio(_grown(part, scope, times), _grown(whole, scope, times))

    return query


def _rate(*metrics: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        return _grown(metrics, scope, times)

    return query


def _held(*metrics: str) -> Query:
    def query(scope: Scope, _times: Times) -> str:
        return sum_by("", first_present(*(f"{metric}{scope.engines()}" for metric in metrics)))

    return query


ASKED = (*both(n.LM_LOOKUP_TOKENS), n.LMS_REQUESTED)

QUERIES.update(
    {
        "lm_lookup_hits": _ratio((*both(n.LM_LOOKUP_HITS), n.LMS_HITS), ASKED),
        "lm_hits_l1": _ratio((n.LMS_HITS_L1,), (n.LMS_REQUESTED,)),
        "lm_hits_l2": _ratio((n.LMS_HITS_L2,), (n.LMS_REQUESTED,)),
        "lm_supplied_tokens": _rate(*both(n.LM_HIT_TOKENS), n.LMS_HITS),
        "lm_vllm_tokens": _rate(*both(n.LM_VLLM_HITS)),
        "lm_evicted": _rate(*both(n.LM_EVICTED), n.LMS_L2_EVICTED),
        "lm_l1_bytes": _held(*both(n.LM_LOCAL_USAGE), n.LMS_L1_BYTES),
        "lm_l2_bytes": _held(*both(n.LM_REMOTE_USAGE), n.LMS_L2_BYTES),
        # Of lookups; misses are counted as up to a tenth.
        "lm_request_rate_p50": quantile_query(50, both(n.LM_REQUEST_RATE), Scope.engines),
        "lm_retrieve_p95": quantile_query(95, both(n.LM_RETRIEVE), Scope.engines),
    }
)
