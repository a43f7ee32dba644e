"""A survey of recorded traffic of workers with known constants, computed once."""

from __future__ import annotations

from functools import cache
from typing import Any

from dashboards.insight.advisor.formulas.candidates import CandidateOptions, list_candidates
from dashboards.insight.whatif.inputs import EngineLimits, make_configuration
from dashboards.insight.whatif.model.analysis import as_survey, survey
from tests.dashboards.insight.whatif.recorded_traffic import TRUTH, WORKERS, recorded_traffic

PRESENT: dict[str, Any] = {
    "strategy": "roundrobin",
    "replicas": WORKERS,
    "routers": 1,
    "rate": 1.0,
    "speed": 1.0,
    "device_tokens": TRUTH.cache_tokens,
    "l1_gib": 0.0,
    "l1_policy": "lru",
    "l2_gib": 0.0,
    "l2_policy": "lru",
    "kv_kib": 45.0,
    "price_usd_hour": 4.0,
}


def options() -> CandidateOptions:
    return CandidateOptions(lambda l1_gib: 4.0 + l1_gib / 100)


def candidates(strategy: str = "prefixaware") -> list[dict[str, Any]]:
    """Return candidates of each kind, few of them."""
    found = list_candidates({**PRESENT, "strategy": strategy}, options())
    return [
        values
        for values in found
        if values["replicas"] in (WORKERS - 1, WORKERS, WORKERS + 2)
        and values["strategy"] in (strategy, "roundrobin")
    ]


@cache
def surveyed(slower: float = 1.0) -> dict[str, Any]:
    """Return the result for workers that were routed to by `prefixaware`."""
    limits = EngineLimits(8192, 256)
    present = make_configuration({**PRESENT, "strategy": "prefixaware"}, limits)
    others = [make_configuration(values, limits) for values in candidates()]
    return as_survey(survey(recorded_traffic(300, slower=slower), present, others, most=600))
