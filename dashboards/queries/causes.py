"""What must have happened before there can be anything to measure, counted over a range. Pure.

A panel without numbers states that nothing happened only where the counter of its cause did not
grow (dashboards.boards.results.evidence).
"""

from __future__ import annotations

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.lmcache import ASKED
from dashboards.boards.queries.promql import Query, Scope, Times, either, named

PREFIX = "happened_"


def _grown(*vectors: str) -> str:
    return either(*(f"sum({vector})" for vector in vectors))


def _increase(metric: str, braces: str, times: Times) -> str:
    return f"increase({metric}{braces}[{times.rate_s}s])"


def _of_workers(*metrics: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        return _grown(*(_increase(metric, scope.engines(), times) for metric in metrics))

    return query


named(f"{PREFIX}prompts")(_of_workers(n.PROMPT))
named(f"{PREFIX}requests")(_of_workers(n.FINISHED))
named(f"{PREFIX}tier_lookups")(_of_workers(n.CHUNK_QUERIES))
named(f"{PREFIX}lmcache_lookups")(_of_workers(*ASKED))


@named(f"{PREFIX}routed")
def _routed(scope: Scope, times: Times) -> str:
    return _grown(_increase(n.DECISIONS, scope.decisions(), times))


@named(f"{PREFIX}answered")
def _answered(scope: Scope, times: Times) -> str:
    return _grown(_increase(n.REQUESTS, scope.router(), times))


@named(f"{PREFIX}l2_operations")
def _l2_operations(_scope: Scope, times: Times) -> str:
    return _grown(_increase(n.L2_OPERATIONS, "", times))
