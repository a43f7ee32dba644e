"""Usage of each endpoint in a range, from Prometheus: worker seconds, tokens, loads.

Requests and tokens are those of callers, as counted by routers; worker counters, which include the
console's own requests, split the cached ones among tiers.

One set of queries covers all endpoints. If Prometheus does not respond the result is a fault, not
zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dashboards.boards import queries
from dashboards.boards.queries import Scope
from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.cost import USAGE
from dashboards.boards.results import evidence, targets
from dashboards.costs.formulas.savings import TIERS, Counts
from dashboards.prometheus.http.client import Asker, Fault, QueryResult, Question

COVERED_STEP_S = 60
_SAMPLES: Final = 2_000_000  # that a query of worker time evaluates, of all targets together


def _time_queries(range_s: int, step: int) -> dict[str, str]:
    """Return the queries of worker time, counted by `step`, for a range that ends now."""
    over = _steps(range_s, step)
    up, busy = 'up{job="vllm"}', f"({n.RUNNING} > 0)"
    return {
        name: f"sum by (endpoint_name) (count_over_time({vector}{over})) * {step}"
        for name, vector in (("worker_s", up), ("busy_s", busy))
    }


def coverage_query(range_s: int) -> str:
    """Return the query for the seconds of the range with any scrape."""
    return f"count_over_time((count(up)){_steps(range_s, COVERED_STEP_S)}) * {COVERED_STEP_S}"


def _steps(range_s: int, step: int) -> str:
    """Return a subquery range with one point a step; Prometheus 2 includes both ends of a range."""
    return f"[{range_s - 1}s:{step}s]"


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """Counts by endpoint name, without endpoints that were not scraped. `missing`: reason of a
    partial result, if one of several sources did not respond.
    """

    by_endpoint: Mapping[str, Counts]
    fault: Fault | None = None
    missing: Fault | None = None


def count_usage(prometheus: Asker, range_s: int, now: float) -> UsageCounts:
    end = int(now) // queries.SCRAPE_S * queries.SCRAPE_S
    known = targets.count_targets(prometheus, Scope(), now)
    step = max(queries.SCRAPE_S, math.ceil(range_s * known / _SAMPLES))
    questions = {name: Question(query, end) for name, query in _time_queries(range_s, step).items()}
    (totals,) = evidence.plan_recent_totals(prometheus, Scope(), list(USAGE), range_s, now)
    questions |= {name.removeprefix("usage_"): question for name, question in totals.items()}
    answers = prometheus.ask(questions)
    fault = next((answer.fault for answer in answers.values() if answer.fault), None)
    if fault is not None:
        return UsageCounts({}, fault)
    by_name = {name: _by_endpoint(answer) for name, answer in answers.items()}
    names = {name for values in by_name.values() for name in values}
    missing = next((absence for answer in answers.values() for absence in answer.missing), None)
    counts = {name: _counts(name, by_name) for name in sorted(names) if name}
    return UsageCounts(counts, missing=missing)


def _by_endpoint(answer: QueryResult) -> dict[str, float]:
    return {
        series.label("endpoint_name") or series.label("endpoint"): series.latest
        for series in answer.series
        if series.latest is not None
    }


def _counts(name: str, found: Mapping[str, Mapping[str, float]]) -> Counts:
    worker_s, busy_s = found["worker_s"].get(name), found["busy_s"].get(name)
    computed, cached = found["computed"].get(name), found["cached"].get(name, 0.0)
    tiers = {tier: found[tier].get(name, 0.0) for tier in TIERS}
    served = sum(tiers.values())
    return Counts(
        worker_s=worker_s,
        # No step with a running request gives no series; the value is then zero.
        busy_s=0.0 if worker_s is not None and busy_s is None else busy_s,
        prefill_s=found["prefill"].get(name),
        decode_s=found["decode"].get(name),
        prompt=None if computed is None else computed + cached,
        generated=found["generated"].get(name),
        requests=found["requests"].get(name),
        cached={
            tier: cached * tokens / served if served else 0.0 for tier, tokens in tiers.items()
        },
        load_s=found["load"].get(name),
        l2_bytes=found["l2_bytes"].get(name),
    )
