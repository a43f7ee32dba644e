"""Asking what rules keep instead of every sample, where a board looks back over hours and weeks.

The numbers are those of `growth` over whole steps of one or five minutes: a rule keeps by how much
each counter grew a second within the last of these, and a sum over time is what happened, also
where an endpoint was there for a part of it. Pure; whether the rules were there all the while is
asked with `not_covered`.

A counter scraped every five seconds has half a million samples in a month, and eight thousand steps
of five minutes. What asks for no single worker is asked of sums over workers, so that it does not
become dearer with their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dashboards.boards.queries import growth
from dashboards.boards.queries.growth import FINE_S, GROWN, window_s
from dashboards.boards.queries.promql import JOBS, QUERIES, Scope, Times

OF_ONE: Final = ("engine", "instance", "pod", "worker")  # what sums do not tell apart


@dataclass(frozen=True, slots=True)
class Family:
    """What one group of rules writes."""

    every_s: int
    prefix: str

    @property
    def all(self) -> str:
        """Before a metric's name: of all workers of an endpoint."""
        return f"{self.prefix}:"

    @property
    def each(self) -> str:
        """Before a metric's name: with every label it had."""
        return f"{self.prefix}_each:"

    @property
    def scraped(self) -> str:
        return f"{self.prefix}:scraped"

    def serves(self, window_s: int, step_s: int) -> bool:
        """Windows consist of whole ones. Steps do, too, or some would count twice; unless the
        window is so long that it does not matter where exactly it begins."""
        long = window_s >= max(_LONG_S, _MANY * self.every_s)
        return window_s % self.every_s == 0 and (step_s % self.every_s == 0 or long)


FAMILIES: Final = (Family(300, "emberline5m"), Family(60, "emberline1m"))  # the coarsest first

_LONG_S = 3600  # a shorter one has too few samples to be worth asking whether rules kept it
_MANY = 12
_LOOKS = 300  # at how many moments it is looked whether rules kept anything
_NAMES_ONE = re.compile(rf"\b({'|'.join(OF_ONE)})\b")


def wanted(expressions: Iterable[str], times: Times) -> dict[Family, int]:
    """Which families would be asked, and over how many seconds before each step."""
    known = _dense(times.scrape_s)
    found: dict[Family, int] = {}
    for expression in expressions:
        for one in GROWN.finditer(expression):
            length_s = window_s(one)
            family = _serving(known, length_s, times.step_s)
            if family is not None:
                back_s = 0 if one[6] else length_s
                found[family] = max(found.get(family, 0), back_s)
    return found


def instead(expression: str, times: Times) -> str:
    """The expression, asked of the families in `times.kept`; what they do not keep stays."""
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
        # A millisecond less: both ends of a range belong to it before Prometheus 3.
        span = f"[{1000 * length_s - 1}ms]{at}"
        return f"(sum_over_time({prefix}{metric}{braces}{span}) * {factor!r})"

    return GROWN.sub(put, expression)


def _dense(scrape_s: int) -> tuple[Family, ...]:
    """A rate needs four samples, in a rule as well as on a board."""
    return tuple(family for family in FAMILIES if 4 * scrape_s <= family.every_s)


def _serving(families: Sequence[Family], window_s: int, step_s: int) -> Family | None:
    return next((family for family in families if family.serves(window_s, step_s)), None)


def counters() -> tuple[str, ...]:
    """Every counter, and every part of a histogram, whose growth some query asks for."""
    times = Times(300, 300)
    found = (GROWN.finditer(query(Scope(), times)) for query in QUERIES.values())
    return tuple(sorted({one[2] for each in found for one in each}))


def rules(family: Family) -> list[dict[str, str]]:
    """To be evaluated as often as the family says."""
    jobs = "|".join(JOBS)
    found = [{"record": family.scraped, "expr": f'count(up{{job=~"{jobs}"}})'}]
    for metric in counters():
        grown = growth.counted(f"rate({metric}[{family.every_s}s])", FINE_S)
        summed = f"sum without ({', '.join(OF_ONE)}) ({family.each}{metric})"
        found += [
            {"record": family.each + metric, "expr": grown},
            {"record": family.all + metric, "expr": summed},
        ]
    return found


def not_covered(family: Family, back_s: int) -> str:
    """At how many moments of the last `back_s` something was scraped and no rule kept anything; no
    series: at none. Looks two evaluations ahead, for a rule comes after what it adds up. Of what
    is younger than the first of these moments, the last one tells."""
    every_s = family.every_s
    step_s = every_s * max(1, back_s // (_LOOKS * every_s))
    scraped = f'count(up{{job=~"{"|".join(JOBS)}"}})'
    known = f"last_over_time({family.scraped}[{4 * every_s}s] offset -{2 * every_s}s)"
    lacking = f"({scraped} unless on () {known})"
    at_last = f"({scraped} unless on () last_over_time({family.scraped}[{4 * every_s}s]))"
    return f"sum(count_over_time({lacking}[{back_s}s:{step_s}s])) or {at_last}"
