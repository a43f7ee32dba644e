"""What a rule would have done with other numbers: its condition, asked for times gone by.

Promises a bounded number of questions whatever is asked; that what it cannot know is said (between
two looks, while nothing was scraped, of sources that did not answer); and `Refused` where no
Prometheus answers. Must not know Django.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from console.core.errors import Problem, Refused
from dashboards.alerts.evaluation.intervals import Looks, RuleVerdict, verdict
from dashboards.alerts.evaluation.measure import VALUE, Drawing, Measure
from dashboards.alerts.rules.parameter import in_words
from dashboards.boards.queries import Scope
from dashboards.boards.results import resolution
from dashboards.prometheus.http.client import (
    Asker,
    Fault,
    FaultKind,
    QueryResult,
    Question,
    Series,
    Window,
)

# How far back is looked, how often, and how often where it must hold for long: each look costs.
RANGES: Final = {"24h": (86_400, 15, 120), "7d": (7 * 86_400, 120, 600)}
_MANY_S: Final = {"24h": 60, "7d": 300}  # how often where many targets make each look dear
_MANY: Final = 100
_LONG_S: Final = 600
KEYS: Final = tuple(RANGES)
DEFAULT: Final = "24h"
MOST_SERIES: Final = 300  # of a condition somebody wrote
AGGREGATE: Final = "Aggregate it, as in sum by (endpoint) (...), or match fewer label values."
NARROW: Final = (
    "Name one metric, match an endpoint or a job, shorten ranges such as [5m], or record it first."
)
MOST_CONDITIONS: Final = 6
_AT_ONCE: Final = 240  # looks: several short questions are answered where a long one is given up
_DRAWN: Final = {"24h": 300, "7d": 1800}
_SCRAPED: Final = "count(up)"


@dataclass(frozen=True, slots=True)
class Condition:
    """For whom it counts is in `expr`."""

    expr: str
    lasting_s: int


@dataclass(frozen=True, slots=True)
class ConditionValues:
    """A rule as it would be, or is: `left` conditions are not looked at, since there are many.
    `off`: it is in no file."""

    conditions: tuple[Condition, ...]
    off: bool = False
    left: int = 0


@dataclass(frozen=True, slots=True)
class DryRun:
    """`now`: with the numbers as they are; None where they are the same. `known_s`: while anything
    was scraped; `measured_s`: while there was what the rule measures, None where that may rightly
    be absent."""

    key: str
    since: datetime
    until: datetime
    step_s: int
    for_s: int
    new: RuleVerdict
    now: RuleVerdict | None
    known_s: int
    measured_s: int | None
    left: int = 0
    missing: tuple[str, ...] = ()
    drawing: Drawing = field(default_factory=Drawing)

    @property
    def length_s(self) -> int:
        return int((self.until - self.since).total_seconds())

    @property
    def step(self) -> str:
        return in_words(self.step_s)

    @property
    def gap(self) -> bool:
        """Whether nothing was scraped for more than a look here and there."""
        return self.known_s < self.length_s * 0.98


def dry_run(
    asker: Asker,
    draft: ConditionValues,
    now: ConditionValues | None,
    measure: Measure,
    key: str,
) -> DryRun:
    """`now` None: there is no such rule yet."""
    moment = time.time()
    before = now.conditions if now and now != draft else ()
    longest = max(one.lasting_s for one in draft.conditions)
    length, step, rarely = RANGES[key]
    if min(one.lasting_s for one in (*draft.conditions, *before)) >= _LONG_S:
        step = rarely
    elif resolution.targets(asker, Scope(), moment) > _MANY:
        step = _MANY_S[key]
    looks, windows = _windows(moment, length, step, min(longest, length))
    coarse = Window.ending(moment, length, _DRAWN[key])
    optional = measure.questions(coarse)  # of what a person wrote they may be none
    asked = {**optional, "known": Question(_SCRAPED, coarse.end, coarse, "sum")}
    for one in dict.fromkeys((*draft.conditions, *before)):
        asked |= _questions(one, windows)
    answers = asker.ask({key: replace(one, heavy=True) for key, one in asked.items()})
    _all_there({key: answer for key, answer in answers.items() if key not in optional})

    def judged(numbers: ConditionValues) -> RuleVerdict:
        found = [
            (series, one.lasting_s)
            for one in numbers.conditions
            for series in _joined(answers, one, windows)
        ]
        return verdict(found, looks, off=numbers.off)

    return DryRun(
        key,
        datetime.fromtimestamp(looks.since, UTC),
        datetime.fromtimestamp(windows[-1].end, UTC),
        step,
        longest,
        judged(draft),
        judged(now) if before and now else None,
        _seconds(answers["known"].series, coarse),
        _measured(measure, answers[VALUE].series, coarse),
        draft.left,
        tuple(dict.fromkeys(one.detail for each in answers.values() for one in each.missing)),
        measure.drawn(answers, coarse),
    )


def too_many(asker: Asker, expr: str, key: str) -> int:
    """How many series a condition somebody wrote found at once, where those are too many to be
    asked for; 0 where they are not. Raises `Refused`."""
    length, *_ = RANGES[key]
    window = Window.ending(time.time(), length, _DRAWN[key])
    question = Question(f"count(\n{expr}\n)", window.end, window, "sum", heavy=True)
    answers = asker.ask({"count": question})
    _all_there(answers)
    found = [value for one in answers["count"].series for value in one.values if value is not None]
    most = int(max(found, default=0))
    return most if most > MOST_SERIES else 0


def refusal(fault: Fault) -> Refused:
    """Why a condition could not be asked for, with what to do."""
    if fault.kind is FaultKind.BAD_QUERY:
        text = f"Prometheus refuses it: {fault.detail.rstrip('.')}."
        return Refused(Problem("expr", None, text, "Correct the expression.", "promql"))
    if fault.kind is FaultKind.TOO_SLOW:
        text = f"Prometheus did not evaluate it in time: {fault.detail.rstrip('.')}."
        remedy = f"Choose a shorter range. {NARROW}"
        return Refused(Problem("range", None, text, remedy, "too_slow"), status_code=503)
    if fault.kind is FaultKind.TOO_EXPENSIVE:
        text = f"It reads more than Prometheus allows: {fault.detail.rstrip('.')}."
        return Refused(Problem("expr", None, text, NARROW, "too_expensive"))
    text = f"Only a Prometheus can say. {fault.detail}"
    problem = Problem("", None, text, "Try again when it answers.", "not_known")
    return Refused(problem, status_code=503)


def _windows(
    moment: float, length: int, step: int, lasting_s: int
) -> tuple[Looks, tuple[Window, ...]]:
    """One after the other, from before the time that
    is judged, so that it is known what fired already then."""
    end = int(moment) // step * step
    since = end - length
    points = length // step + -(-lasting_s // step) + 1
    start = end - (points - 1) * step
    found = []
    for first in range(0, points, _AT_ONCE):
        last = min(first + _AT_ONCE, points) - 1
        found.append(Window(start + first * step, start + last * step, step))
    return Looks(start, step, since), tuple(found)


def _questions(one: Condition, windows: Sequence[Window]) -> dict[str, Question]:
    # To the power of 0 every number is 1: infinity, which is not told by numbers, holds too.
    text = f"(\n{one.expr}\n) ^ 0"
    return {_key(one, place): Question(text, at.end, at) for place, at in enumerate(windows)}


def _key(one: Condition, place: int) -> str:
    return f"{place} {one.expr}"


def _all_there(answers: Mapping[str, QueryResult]) -> None:
    for answer in answers.values():
        if answer.fault is not None:
            raise refusal(answer.fault)


def _joined(
    answers: Mapping[str, QueryResult], one: Condition, windows: Sequence[Window]
) -> list[Series]:
    """Each series over all windows."""
    parts = [answers[_key(one, place)].series for place in range(len(windows))]
    rows = [{series.labels: series.values for series in found} for found in parts]
    nothing = [(None,) * window.points for window in windows]
    return [
        Series(
            labels,
            tuple(
                v for row, none in zip(rows, nothing, strict=True) for v in row.get(labels, none)
            ),
        )
        for labels in dict.fromkeys(labels for row in rows for labels in row)
    ]


def _measured(measure: Measure, lines: Sequence[Series], window: Window) -> int | None:
    """What is measured by its absence is rightly not there."""
    if "absent" in measure.value:
        return None
    return _seconds(lines, window)


def _seconds(lines: Sequence[Series], window: Window) -> int:
    there = sum(
        any(one.values[place] is not None for one in lines) for place in range(1, window.points)
    )
    return there * window.step
