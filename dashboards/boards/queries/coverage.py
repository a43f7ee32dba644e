"""Moments at which recording rules lack values, and counters that have or got series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def names_exported(found: Iterable[tuple[str, str]], range_s: int) -> str:
    """Return the names of those counters that had a series within `range_s`."""
    parts = (
        f"count by (metric) ({_label_name(f'last_over_time({{{inside}}}[{range_s}s])')})"
        for inside in _select_together(found)
    )
    return " or ".join(parts)


def _label_name(vector: str) -> str:
    """Copy the metric's name into a label: set operations ignore names."""
    return f'label_replace({vector}, "metric", "$1", "__name__", "(.+)")'


def _select_together(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the matchers of all counters with equal braces."""
    by_braces: dict[str, set[str]] = {}
    for metric, braces in found:
        by_braces.setdefault(braces, set()).add(metric)
    for braces, metrics in sorted(by_braces.items()):
        names = f'__name__=~"{"|".join(sorted(metrics))}"'
        yield ",".join(filter(None, [names, braces[1:-1]]))


def names_appeared(found: Iterable[tuple[str, str]], range_s: int) -> str:
    """Return the names of those counters of which a series appeared within
    `range_s` before the evaluation time.
    """
    parts = []
    for inside in _select_together(found):
        last = _label_name(f"last_over_time({{{inside}}}[{range_s}s])")
        before = _label_name(f"{{{inside}}} offset {range_s}s")
        parts.append(f"count by (metric) ({last} unless {before})")
    return " or ".join(parts)
