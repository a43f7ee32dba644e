"""Read recording rules instead of raw samples for ranges of hours and weeks.

Results equal those of `growth` over whole steps: a rule records the growth per second within its
last interval, and a sum over time gives the total. Queries without a worker label read sums over
workers, so their cost is independent of the number of workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.boards.queries import growth
from dashboards.boards.queries.growth import FINE_S, GROWTH_CALL, window_s
from dashboards.boards.queries.promql import JOBS, QUERIES, Scope, Times

WORKER_LABELS: Final = ("engine", "instance", "pod", "worker")  # labels removed from sums


@dataclass(frozen=True, slots=True)
class Family:
    every_s: int
    prefix: str

    @property
    def all(self) -> str:
        """Prefix of metric names summed over an endpoint's workers."""
        return f"{self.prefix}:"

    @property
    def each(self) -> str:
        """Prefix of metric names with all labels."""
        return f"{self.prefix}_each:"

    @property
    def scraped(self) -> str:
        return f"{self.prefix}:scraped"

    def serves(self, window_s: int, step_s: int) -> bool:
        """Whether windows and steps are multiples of the interval. Partial steps would count twice,
        unless the window is so long that its exact start does not matter.
        """
        long = window_s >= max(_MIN_WINDOW_S, _MANY * self.every_s)
        return window_s % self.every_s == 0 and (step_s % self.every_s == 0 or long)


FAMILIES: Final = (Family(300, "emberline5m"), Family(60, "emberline1m"))  # coarsest first

_MIN_WINDOW_S = 3600  # shorter windows have too few samples to gain from rules
_MANY = 12
_COVERAGE_SAMPLES = 300
_NAMES_ONE = re.compile(rf"\b({'|'.join(WORKER_LABELS)})\b")


def select_families(expressions: Iterable[str], times: Times) -> dict[Family, int]:
    """Return the families to query, with the seconds each reads before a step."""
    known = _usable_families(times.scrape_s)
    found: dict[Family, int] = {}
    for expression in expressions:
        for one in GROWTH_CALL.finditer(expression):
            length_s = window_s(one)
            family = _serving(known, length_s, times.step_s)
            if family is not None:
                back_s = 0 if one[6] else length_s
                found[family] = max(found.get(family, 0), back_s)
    return found


def rewrite_recorded(expression: str, times: Times) -> str:
    """Rewrite the expression to the families in `times.kept`; other counters stay."""
    families = [family for family in FAMILIES if family.every_s in times.kept]
    names_one = _NAMES_ONE.search(expression)

    def put(found: re.Match[str]) -> str:
        how, metric, braces, _, _, at = found.groups(default="")
        length_s = window_s(found)
        family = _serving(families, length_s, times.step_s)
        if family is None:
            return found[0]
        prefix = family.each if names_one else family.all
        factor = family.every_s if how == "increase" else family.every_s / length_s
        # One millisecond less: before Prometheus 3 a range includes both ends.
        span = f"[{1000 * length_s - 1}ms]{at}"
        return f"(sum_over_time({prefix}{metric}{braces}{span}) * {factor!r})"

    return GROWTH_CALL.sub(put, expression)


def _usable_families(scrape_s: int) -> tuple[Family, ...]:
    """Return the families whose interval has four samples, the minimum for a rate."""
    return tuple(family for family in FAMILIES if 4 * scrape_s <= family.every_s)


def _serving(families: Sequence[Family], window_s: int, step_s: int) -> Family | None:
    return next((family for family in families if family.serves(window_s, step_s)), None)


def list_counters() -> tuple[str, ...]:
    times = Times(300, 300)
    found = (GROWTH_CALL.finditer(query(Scope(), times)) for query in QUERIES.values())
    return tuple(sorted({one[2] for each in found for one in each}))


def make_rules(family: Family) -> list[dict[str, str]]:
    jobs = "|".join(JOBS)
    found = [{"record": family.scraped, "expr": f'count(up{{job=~"{jobs}"}})'}]
    for metric in list_counters():
        grown = growth.rewrite_for_total(f"rate({metric}[{family.every_s}s])", FINE_S)
        summed = f"sum without ({', '.join(WORKER_LABELS)}) ({family.each}{metric})"
        found += [
            {"record": family.each + metric, "expr": grown},
            {"record": family.all + metric, "expr": summed},
        ]
    return found


def count_uncovered(family: Family, back_s: int) -> str:
    """Count the moments within `back_s` with scrapes but without recorded values; no series means
    none. Reads two evaluations ahead, because a rule is evaluated after the samples it sums. For
    targets younger than the first moment only the last moment counts.
    """
    every_s = family.every_s
    step_s = every_s * max(1, back_s // (_COVERAGE_SAMPLES * every_s))
    scraped = f'count(up{{job=~"{"|".join(JOBS)}"}})'
    known = f"last_over_time({family.scraped}[{4 * every_s}s] offset -{2 * every_s}s)"
    lacking = f"({scraped} unless on () {known})"
    at_last = f"({scraped} unless on () last_over_time({family.scraped}[{4 * every_s}s]))"
    return f"sum(count_over_time({lacking}[{back_s}s:{step_s}s])) or {at_last}"
