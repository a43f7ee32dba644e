"""Scrape interval and number of targets, read from Prometheus' own samples once a minute.

The rate window must fit the scrape interval: 5 s locally, up to 60 s in clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dashboards.boards import queries
from dashboards.boards.panels.declarations import Range
from dashboards.boards.queries import SCRAPE_S, Scope, recording_rules
from dashboards.boards.queries.recording_rules import Family
from dashboards.prometheus.http.client import Asker, QueryResult, Question

MEMORY_S = 60  # s; also how long values of a replaced Prometheus remain in use
_MAX_SCOPES = 10_000


@dataclass(frozen=True, slots=True)
class ScrapeResolution:
    at: float
    every_s: int = SCRAPE_S
    targets: int = 0


_memory: dict[Scope, ScrapeResolution] = {}


def get_interval_s(asker: Asker, scope: Scope, now: float) -> int:
    """Return the interval; at least the local Prometheus' interval, which is also the default."""
    return _query_resolution(asker, scope, now).every_s


def count_targets(asker: Asker, scope: Scope, now: float) -> int:
    """Return the number of targets; 0 when unknown."""
    return _query_resolution(asker, scope, now).targets


def _query_resolution(asker: Asker, scope: Scope, now: float) -> ScrapeResolution:
    known = _memory.get(scope)
    if known is not None and 0 <= now - known.at < MEMORY_S:
        return known
    at = int(now) // SCRAPE_S * SCRAPE_S
    asked = {
        "scraped_every": Question(queries.availability.scraped_every(scope), at, join="max"),
        "scraped": Question(queries.availability.scraped(scope), at, join="sum"),
    }
    told = {name: _number(answer) for name, answer in asker.ask(asked).items()}
    if told["scraped_every"] is None:
        return ScrapeResolution(now)
    if len(_memory) >= _MAX_SCOPES:
        _memory.clear()
    every_s = max(SCRAPE_S, round(told["scraped_every"]))
    _memory[scope] = ScrapeResolution(now, every_s, int(told["scraped"] or 0))
    return _memory[scope]


def _number(answer: QueryResult) -> float | None:
    return next((series.latest for series in answer.series if series.latest is not None), None)


def list_covered(asker: Asker, reach_s: Mapping[Family, int], at: int) -> tuple[int, ...]:
    """Return the intervals of those families of recording rules that cover their reach before
    `at`.
    """
    names = {f"not_covered_{family.every_s}": family for family in reach_s}
    asked = {
        name: Question(recording_rules.count_uncovered(family, reach_s[family]), at, join="sum")
        for name, family in names.items()
    }
    answers = asker.ask(asked) if asked else {}
    return tuple(family.every_s for name, family in names.items() if _is_zero(answers[name]))


def _is_zero(answer: QueryResult) -> bool:
    return answer.fault is None and not any(series.latest for series in answer.series)


def clear_memory() -> None:
    _memory.clear()


MAX_RAW_POINTS = 10_000  # points of all targets, for steps below those of recording rules
MAX_RECORDED_POINTS = 20_000
_RECORDED_STEP_S = 60
_MIN_POINTS = 12
_STEPS_S = (
    *(10, 15, 20, 30, 60, 120, 300, 600, 900),
    *(1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400),
)


def fit_range(asker: Asker, scope: Scope, chosen: Range, now: float) -> Range:
    """Return the range with a step that fits the scrape interval and the number of targets."""
    target_count = count_targets(asker, scope, now)
    step_s = chosen.step_s
    for longer_s in _STEPS_S:
        points = chosen.length_s // step_s
        if points * target_count <= (
            MAX_RAW_POINTS if step_s < _RECORDED_STEP_S else MAX_RECORDED_POINTS
        ):
            break
        if longer_s > step_s and chosen.length_s // longer_s >= _MIN_POINTS:
            step_s = longer_s
    return replace(chosen, step_s=step_s)
