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
from dashboards.boards.queries import metric_names as n
from dashboards.costs.formulas.savings import Counts
from dashboards.prometheus.http.client import Asker, Fault, QueryResult, Question

COVERED_STEP_S = 60
_SAMPLES: Final = 2_000_000  # that a query of worker time evaluates, of all workers together

_OLDER = {"device": (n.PREFIX_HITS, n.PREFIX_HITS_OLD), "l2": (n.EXTERNAL_HITS,)}
"""Counters of engines that do not separate the sources. Hits beyond the device may include L1;
they are assigned like sources the engine cannot name.
"""
_SOURCES = {"device": "device", "l1": "host", "l2": "disk|p2p|external_unspecified"}


def usage_queries(range_s: int, step: int) -> dict[str, str]:
    """Return the queries by name, for a range that ends now; worker time is counted by `step`."""
    over = _steps(range_s, step)
    queries_by_name = {
        "worker_s": f'sum by (endpoint_name) (count_over_time(up{{job="vllm"}}{over})) * {step}',
        "busy_s": f"sum by (endpoint_name) (count_over_time(({n.RUNNING} > 0){over})) * {step}",
        "computed": _of_callers(n.ROUTER_COMPUTED, "", range_s),
        "cached": _of_callers(n.ROUTER_CACHED, "", range_s),
        "generated": _of_callers(n.ROUTER_COMPLETION, "", range_s),
        "requests": _of_callers(n.REQUESTS, 'code=~"2.."', range_s),
        "prefill": _grown(f"{n.PREFILL_TIME}_sum", "", range_s),
        "decode": _grown(f"{n.DECODE_TIME}_sum", "", range_s),
        "load": _grown(n.LOAD_TIME, "", range_s),
        "l2_bytes": _grown(n.READ, 'tier!~"0:.*"', range_s),
    }
    for tier, source in _SOURCES.items():
        queries_by_name[f"cached_{tier}"] = _grown(n.CACHED, f'source=~"{source}"', range_s)
    for tier, metrics in _OLDER.items():
        older = " or ".join(_grown(metric, "", range_s) for metric in metrics)
        reported = _grown(n.CACHED, "", range_s)
        queries_by_name[f"cached_{tier}"] += f" or (({older}) unless on (endpoint_name) {reported})"
    return queries_by_name


def _grown(metric: str, braces: str, range_s: int) -> str:
    return f"sum by (endpoint_name) (increase({metric}{{{braces}}}[{range_s}s]))"


def _of_callers(metric: str, braces: str, range_s: int) -> str:
    inside = ",".join(filter(None, ['traffic!="console"', braces]))
    return f"sum by (endpoint) (increase({metric}{{{inside}}}[{range_s}s]))"


def coverage_query(range_s: int) -> str:
    """Return the query for the seconds of the range with any scrape."""
    return f"count_over_time((count(up)){_steps(range_s, COVERED_STEP_S)}) * {COVERED_STEP_S}"


def _steps(range_s: int, step: int) -> str:
    """Return a subquery range with one point a step; Prometheus 2 includes both ends of a range."""
    return f"[{range_s - 1}s:{step}s]"


TIERS = ("device", "l1", "l2")


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
    workers = prometheus.ask({"workers": Question('count(up{job="vllm"})', end, join="sum")})
    known = sum(series.latest or 0.0 for series in workers["workers"].series)
    step = max(queries.SCRAPE_S, math.ceil(range_s * known / _SAMPLES))
    questions = {name: Question(query, end) for name, query in usage_queries(range_s, step).items()}
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
    tiers = {tier: found[f"cached_{tier}"].get(name, 0.0) for tier in TIERS}
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
