"""Recording rules that provide LMCache's documented metric names and precomputed long ranges.

The rules rename and never aggregate, so labels stay and `rate` sees counter resets. LMCache's
histogram of hit rates cannot be derived in multi-process mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from console.core import yaml_reader
from dashboards.boards.queries import (
    QUERIES,
    Scope,
    Times,
    cache,
    cluster,
    fleet_sums,
    growth,
    metric_names,
)
from dashboards.boards.queries.promql import JOBS, sum_by

# Only endpoints with an LMCache server: other workers must not get these series.
_SERVER = "lmcache_mp_lookup_requested_tokens_total"
_SAME_WORKER = f"and on (namespace, endpoint_name) {_SERVER}"


@dataclass(frozen=True, slots=True)
class Record:
    """Recording rule. `sources`: alternative expressions of the same value; on equal labels the
    first wins. `meaning`: description of the counted value.
    """

    name: str
    sources: tuple[str, ...]
    meaning: str

    @property
    def expr(self) -> str:
        return " or ".join(self.sources)

    def data(self) -> dict[str, Any]:
        return {"record": self.name, "expr": self.expr}


def _lmcache(name: str, server: str, meaning: str) -> Record:
    """Also accept the OpenMetrics form: LMCache's own port exports names without colons."""
    return Record(f"lmcache:{name}", (server, f"lmcache_{name}"), meaning)


# Server: LMCache's multi-process mode, which vLLM 0.32 selects for kv_offloading_backend=lmcache.
# Values that the server does not export come from the vLLM worker it serves.
LMCACHE: Final = (
    _lmcache(
        "num_lookup_hits_total",
        "lmcache_mp_lookup_hit_tokens_total",
        "Prompt tokens found in LMCache lookups.",
    ),
    _lmcache(
        "num_lookup_tokens_total", _SERVER, "Prompt tokens looked up: denominator of the above."
    ),
    _lmcache("num_lookup_requests_total", "lmcache_mp_lookups_requests_total", "Lookups."),
    _lmcache(
        "num_hit_tokens_total",
        f"(vllm:external_prefix_cache_hits_total {_SAME_WORKER})",
        "Prompt tokens supplied to vLLM by LMCache.",
    ),
    _lmcache(
        "num_vllm_hit_tokens_total",
        f"(vllm:prefix_cache_hits_total {_SAME_WORKER})",
        "Prompt tokens already in vLLM's device cache, not supplied by LMCache.",
    ),
    _lmcache(
        "num_prompt_tokens_total",
        f"(vllm:prompt_tokens_total {_SAME_WORKER})",
        "All prompt tokens: denominator of the above.",
    ),
)
GROUPS: Final[dict[str, tuple[Record, ...]]] = {"emberline-lmcache-names": LMCACHE}
# Group name by evaluation interval (s). Boards with ranges of hours or days read these series
# (dashboards.boards.queries.growth).
LONG_RANGES: Final = {
    3600: "emberline-weeks",
    300: "emberline-long-ranges",
    60: "emberline-middle-ranges",
}


def groups() -> list[dict[str, Any]]:
    return [
        {"name": name, "rules": [record.data() for record in records]}
        for name, records in GROUPS.items()
    ]


def long_ranges() -> list[dict[str, Any]]:
    return [
        {
            "name": LONG_RANGES[family.every_s],
            "interval": f"{family.every_s}s",
            "rules": make_rules(family),
        }
        for family in growth.FAMILIES
    ]


def _find_calls() -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each growth of a counter of all endpoints, with its expression."""
    texts = (growth.render_plain(name, Scope(), Times(300, 300)) for name in QUERIES)
    return ((text, call) for text in texts for call in growth.GROWTH_CALL.finditer(text))


def list_counters() -> tuple[str, ...]:
    return tuple(sorted({call[2] for _, call in _find_calls()}))


def list_fleet_counters() -> dict[str, tuple[str, ...]]:
    """Return the counters summed over all endpoints, with the labels that are kept."""
    calls = ((text, call) for text, call in _find_calls() if not growth.names_one(text))
    labels = fleet_sums.collect_labels(calls) | {cache.TIER_TOKENS: {"tier"}}
    return {metric: tuple(sorted(labels)) for metric, labels in sorted(labels.items())}


def make_rules(family: growth.Family) -> list[dict[str, str]]:
    jobs = "|".join(JOBS)
    rules = [{"record": family.scraped, "expr": f'count(up{{job=~"{jobs}"}})'}]
    for metric in list_counters():
        if family.sums_only:
            rules.append({"record": family.all + metric, "expr": _average(family, metric)})
            continue
        grown = growth.rewrite_for_total(f"rate({metric}[{family.every_s}s])", growth.FINE_S)
        summed = f"sum without ({', '.join(growth.WORKER_LABELS)}) ({family.each}{metric})"
        rules += [
            {"record": family.each + metric, "expr": grown},
            {"record": family.all + metric, "expr": summed},
        ]
    rules.append({"record": family.all + cache.TIER_TOKENS, "expr": _sum_tiers(family)})
    rules += _sum_fleet(family)
    if family == growth.COPIES:
        rules += [{"record": family.now + metric, "expr": metric} for metric in metric_names.COPIED]
    return rules


def _sum_fleet(family: growth.Family) -> list[dict[str, str]]:
    """Sum the sums of the endpoints, which precede in the same group."""
    fleet = [{"record": family.fleet_scraped, "expr": family.scraped}]
    for metric, labels in list_fleet_counters().items():
        summed = sum_by(", ".join(labels), family.all + metric)
        fleet.append({"record": family.fleet + metric, "expr": summed})
    for name in cluster.FLEET_GAUGES if family == growth.COPIES else ():
        times = Times(family.every_s, family.every_s, kept=(family.every_s,))
        expr = growth.render_declared(name, Scope(), times)
        fleet.append({"record": family.fleet + name, "expr": expr})
    return fleet


def _sum_tiers(family: growth.Family) -> str:
    if family.sums_only:
        return _average(family, cache.TIER_TOKENS)
    times = Times(family.every_s, family.every_s, kept=(family.every_s,))
    return growth.rewrite_recorded(cache.tokens_by_tier(replace(times, kept=())), times)


def _average(family: growth.Family, metric: str) -> str:
    """Derive the growth per second from the next finer family, at a fraction of its cost."""
    finer = growth.FAMILIES[growth.FAMILIES.index(family) + 1]
    # One millisecond less: before Prometheus 3 a range includes both ends.
    summed = f"sum_over_time({finer.all}{metric}[{1000 * family.every_s - 1}ms])"
    return f"{summed} * {finer.every_s} / {family.every_s}"


def all_groups() -> list[dict[str, Any]]:
    return [*groups(), *long_ranges()]


def render(found: list[dict[str, Any]] | None = None) -> str:
    """Render a rule file of the given groups; None means all groups."""
    head = "# Written by Emberline at every start; changes here are lost.\n"
    every = all_groups() if found is None else found
    return head + yaml_reader.render({"groups": every})
