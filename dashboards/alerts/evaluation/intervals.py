"""When a rule would have fired, from looks at its condition at equal distances. Pure.

Promises to judge as Prometheus does (an alert fires at the first look at which its condition has
held for long enough, until the first at which it does not hold), and to count apart what was seen
too briefly to tell: between two looks a condition may begin and end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dashboards.alerts.evaluation.measure import named
from dashboards.prometheus.http.client import Series

MOST_SHOWN: Final = 50
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Looks:
    """Of a condition: the first at `start`, then every `step` seconds. Those before `since` only
    tell whether an alert fires already then."""

    start: int
    step: int
    since: int

    def at(self, place: int) -> int:
        return self.start + place * self.step


@dataclass(frozen=True, slots=True)
class Stretch:
    """Of looks at which the condition held, from the first to the last."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Fired:
    """What one alert would have done. `unsure`: how often the condition was seen for less than it
    must hold, and may have held for long enough."""

    about: str
    times: int = 0
    firing_s: int = 0
    longest_s: int = 0
    last: datetime | None = None
    still: bool = False
    unsure: int = 0


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """`about`: the longest firing first. `off`: as set, the rule is in no file; what is said is
    what it would do if it were on."""

    about: tuple[Fired, ...] = ()
    off: bool = False

    @property
    def times(self) -> int:
        return sum(one.times for one in self.about)

    @property
    def firing_s(self) -> int:
        return sum(one.firing_s for one in self.about)

    @property
    def unsure(self) -> int:
        return sum(one.unsure for one in self.about)

    @property
    def fired(self) -> list[Fired]:
        return [one for one in self.about if one.times]


def verdict(found: Iterable[tuple[Series, int]], looks: Looks, *, off: bool = False) -> RuleVerdict:
    """`found`: series of the condition, each with how long it must hold."""
    judged = [fired(series, looks, lasting_s) for series, lasting_s in found]
    worth = [one for one in judged if one.times or one.unsure]
    return RuleVerdict(tuple(sorted(worth, key=lambda one: (-one.firing_s, one.about))), off)


def fired(series: Series, looks: Looks, lasting_s: int) -> Fired:
    times = total = longest = unsure = 0
    last, still = None, False
    wait = -(-lasting_s // looks.step)  # looks until it has held for long enough
    for one in stretches(series.values):
        ends = looks.at(one.last + 1)
        if ends <= looks.since:
            continue
        if one.first + wait > one.last:
            unsure += ends - looks.at(one.first - 1) >= lasting_s > 0
            continue
        begins = max(looks.at(one.first + wait), looks.since)
        times, total = times + 1, total + ends - begins
        longest = max(longest, ends - begins)
        last = datetime.fromtimestamp(begins, UTC)
        still = one.last == len(series.values) - 1
    return Fired(named(series), times, total, longest, last, still, unsure)


def stretches(values: Values) -> list[Stretch]:
    """Where there is a number, one after the other."""
    found: list[Stretch] = []
    for place, value in enumerate(values):
        if value is None:
            continue
        if found and found[-1].last == place - 1:
            found[-1] = Stretch(found[-1].first, place)
        else:
            found.append(Stretch(place, place))
    return found
