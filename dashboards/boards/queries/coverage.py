"""Moments at which recording rules lack values, or their sums of all endpoints."""

from __future__ import annotations

from typing import Final

from dashboards.boards.queries.growth import Family
from dashboards.boards.queries.promql import JOBS

_SAMPLES: Final = 300


def find_missing(family: Family, back_s: int) -> str:
    """Return the time of the last moment within `back_s` without recorded values, with scrapes or
    not: cheap.
    """
    step_s, known = _sample(family.every_s, family.scraped, back_s)
    return f"max_over_time((vector(time()) unless on () {known})[{back_s}s:{step_s}s])"


def count_without_fleet(family: Family, back_s: int) -> str:
    """Count the moments with values of the endpoints but without those of the fleet."""
    step_s, known = _sample(family.every_s, family.scraped, back_s)
    _, sums = _sample(family.every_s, family.fleet_scraped, back_s)
    return f"sum(count_over_time(({known} unless on () {sums})[{back_s}s:{step_s}s]))"


def _sample(every_s: int, marker: str, back_s: int) -> tuple[int, str]:
    """Return the distance of the moments, and what has values where a family is recorded."""
    step_s = every_s * max(1, back_s // (_SAMPLES * every_s))
    return step_s, f"last_over_time({marker}[{4 * every_s}s] offset -{2 * every_s}s)"


def count_uncovered(family: Family, back_s: int, before_s: int = 0) -> str:
    """Count the moments within `back_s` with scrapes but without recorded values; no series means
    none. Reads two evaluations ahead, because a rule is evaluated after the samples it sums. For
    targets younger than the first moment only the last moment counts. `before_s`: seconds of the
    range that are known to be recorded up to its end.
    """
    every_s = family.every_s
    step_s, known = _sample(every_s, family.scraped, back_s)
    scraped = f'count(up{{job=~"{"|".join(JOBS)}"}})'
    lacking = f"({scraped} unless on () {known})"
    at_last = f"({scraped} unless on () last_over_time({family.scraped}[{4 * every_s}s]))"
    before_s = max(0, min(before_s, back_s - step_s))
    past = f"[{back_s - before_s}s:{step_s}s]{f' offset {before_s}s' if before_s else ''}"
    return f"sum(count_over_time({lacking}{past})) or {at_last}"
