"""Intervals in which a rule would have fired, from its condition sampled at equal distances.

As in Prometheus, an alert fires from the first sample at which the condition has held for the
`for` duration until the first at which it does not hold. Intervals too short to decide between
two samples are counted separately.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dashboards.alerts.evaluation.measure import series_label
from dashboards.prometheus.http.client import Series

MOST_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """Sample times: the first at `start`, then every `step` seconds. Samples before `since` only
    show whether an alert is already firing.
    """

    start: int
    step: int
    since: int

    def at(self, place: int) -> int:
        return self.start + place * self.step


@dataclass(frozen=True, slots=True)
class FiringSummary:
    """Firing intervals of one alert.

    `unsure`: number of intervals observed shorter than the `for` duration that may have reached it.
    """

    about: str
    times: int = 0
    firing_s: int = 0
    longest_s: int = 0
    last: datetime | None = None
    still: bool = False
    unsure: int = 0


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """When a rule would have fired. `about`: sorted by firing time, longest first. `enabled`: of
    the rule; the result is for the enabled one.
    """

    about: tuple[FiringSummary, ...] = ()
    enabled: bool = True

    @property
    def times(self) -> int:
        return sum(summary.times for summary in self.about)

    @property
    def firing_s(self) -> int:
        return sum(summary.firing_s for summary in self.about)

    @property
    def unsure(self) -> int:
        return sum(summary.unsure for summary in self.about)

    @property
    def longest(self) -> tuple[FiringSummary, ...]:
        return self.about[:MOST_SHOWN]

    @property
    def fired(self) -> list[FiringSummary]:
        return [summary for summary in self.about if summary.times]


def judge_rule(
    found: Iterable[tuple[Series, int]], sample_times: SampleTimes, *, enabled: bool = True
) -> RuleVerdict:
    """Return the verdict on `found`: series of the condition, each with its `for` duration in
    seconds.
    """
    judged = [summarize_firing(series, sample_times, lasting_s) for series, lasting_s in found]
    worth = [rule for rule in judged if rule.times or rule.unsure]
    return RuleVerdict(tuple(sorted(worth, key=lambda one: (-one.firing_s, one.about))), enabled)


def summarize_firing(series: Series, sample_times: SampleTimes, lasting_s: int) -> FiringSummary:
    times = total = longest = unsure = 0
    last, still = None, False
    wait = -(-lasting_s // sample_times.step)  # samples until the `for` duration has passed
    for first, final in series.runs:
        ends = sample_times.at(final + 1)
        if ends <= sample_times.since:
            continue
        if first + wait > final:
            unsure += ends - sample_times.at(first - 1) >= lasting_s > 0
            continue
        begins = max(sample_times.at(first + wait), sample_times.since)
        times, total = times + 1, total + ends - begins
        longest = max(longest, ends - begins)
        last = datetime.fromtimestamp(begins, UTC)
        still = final == len(series.values) - 1
    return FiringSummary(series_label(series), times, total, longest, last, still, unsure)
