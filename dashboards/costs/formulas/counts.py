"""What Prometheus counted of each endpoint within a range: worker seconds, tokens, loads.

Promises one look for all endpoints together, and a fault instead of zeros when Prometheus does not
answer. Knows PromQL only through `queries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashboards.boards import queries
from dashboards.cost import cost_queries
from dashboards.costs.formulas.savings import Counts
from dashboards.prometheus.http.client import Answer, Asker, Fault, Question

TIERS = ("device", "l1", "l2")


@dataclass(frozen=True, slots=True)
class Counted:
    """By endpoint's name; an endpoint nobody scraped is absent. `missing`: why some may be, where
    one of several sources did not answer."""

    by_endpoint: Mapping[str, Counts]
    fault: Fault | None = None
    missing: Fault | None = None


def count(prometheus: Asker, range_s: int, now: float) -> Counted:
    at = int(now) // queries.SCRAPE_S * queries.SCRAPE_S
    asked = {name: Question(query, at) for name, query in cost_queries.all_of(range_s).items()}
    answers = prometheus.ask(asked)
    fault = next((answer.fault for answer in answers.values() if answer.fault), None)
    if fault is not None:
        return Counted({}, fault)
    found = {name: _by_endpoint(answer) for name, answer in answers.items()}
    names = {name for values in found.values() for name in values}
    missing = next((one for answer in answers.values() for one in answer.missing), None)
    counts = {name: _counts(name, found) for name in sorted(names) if name}
    return Counted(counts, missing=missing)


def _by_endpoint(answer: Answer) -> dict[str, float]:
    return {
        series.label("endpoint_name"): series.latest
        for series in answer.series
        if series.latest is not None
    }


def _counts(name: str, found: Mapping[str, Mapping[str, float]]) -> Counts:
    worker_s, busy_s = found["worker_s"].get(name), found["busy_s"].get(name)
    return Counts(
        worker_s=worker_s,
        # No step with a running request is no series, and a zero all the same.
        busy_s=0.0 if worker_s is not None and busy_s is None else busy_s,
        prompt=found["prompt"].get(name),
        generated=found["generated"].get(name),
        requests=found["requests"].get(name),
        cached={tier: found[f"cached_{tier}"].get(name, 0.0) for tier in TIERS},
        load_s=found["load"].get(name),
        l2_bytes=found["l2_bytes"].get(name),
    )
