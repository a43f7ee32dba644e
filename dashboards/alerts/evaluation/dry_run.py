"""Dry run of an alert rule: evaluate its condition with other parameters over past data.

The number of queries is bounded. Gaps are reported (between two samples, without scrapes, sources
that did not respond); `Refused` is raised if no Prometheus responds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from console.core.errors import Problem, Refused
from dashboards.alerts.evaluation.intervals import RuleVerdict, SampleTimes, judge_rule
from dashboards.alerts.evaluation.measure import VALUE, Measure, MeasureChart
from dashboards.alerts.rules.parameter import describe_duration
from dashboards.boards.queries import Scope
from dashboards.boards.results import targets
from dashboards.prometheus.http.client import (
    Asker,
    Fault,
    FaultKind,
    QueryResult,
    Question,
    Series,
    Window,
)
from dashboards.prometheus.http.user_query import MOST_SERIES, NARROW_REMEDY

# Range, resolution, and resolution for long `for` durations: each evaluated point costs.
RANGES: Final = {"24h": (86_400, 15, 120), "7d": (7 * 86_400, 120, 600)}
_MANY_S: Final = {"24h": 60, "7d": 300}  # resolution for conditions with many targets
_MANY: Final = 100
_LONG_S: Final = 600
KEYS: Final = tuple(RANGES)
DEFAULT: Final = "24h"
MOST_CONDITIONS: Final = 6
_AT_ONCE: Final = 240  # points a query: short queries succeed where a long one times out
_DRAWN: Final = {"24h": 300, "7d": 1800}
_SCRAPED: Final = "count(up)"


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition to evaluate; its selectors in `expr` choose the endpoints."""

    expr: str
    lasting_s: int


@dataclass(frozen=True, slots=True)
class ConditionValues:
    """Conditions of a rule. `left`: number of conditions not evaluated, above the limit."""

    conditions: tuple[Condition, ...]
    enabled: bool = True
    left: int = 0


@dataclass(frozen=True, slots=True)
class DryRun:
    """Result of a rule over past data. `now`: result with the current parameters, None if they are
    the same. `known_s`: seconds with scraped data; `measured_s`: seconds with values of the
    measure, None if it may legitimately be absent.
    """

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
    drawing: MeasureChart = field(default_factory=MeasureChart)

    @property
    def length_s(self) -> int:
        return int((self.until - self.since).total_seconds())

    @property
    def step(self) -> str:
        return describe_duration(self.step_s)

    @property
    def gap(self) -> bool:
        """Return whether scrapes are missing for more than an occasional sample."""
        return self.known_s < self.length_s * 0.98


def dry_run(
    asker: Asker, draft: ConditionValues, now: ConditionValues | None, measure: Measure, key: str
) -> DryRun:
    """Evaluate `draft`, and `now` unless it is None (the rule does not exist yet)."""
    moment = time.time()
    before = now.conditions if now and now != draft else ()
    longest = max(condition.lasting_s for condition in draft.conditions)
    length, step, rarely = RANGES[key]
    if min(condition.lasting_s for condition in (*draft.conditions, *before)) >= _LONG_S:
        step = rarely
    elif targets.count_targets(asker, Scope(), moment) > _MANY:
        step = _MANY_S[key]
    sample_times, windows = _windows(moment, length, step, min(longest, length))
    coarse = Window.ending(moment, length, _DRAWN[key])
    optional = measure.questions(coarse)  # user-written rules may have none
    questions = {**optional, "known": Question(_SCRAPED, coarse.end, coarse, "sum")}
    for condition in dict.fromkeys((*draft.conditions, *before)):
        questions |= _questions(condition, windows)
    answers = asker.ask({key: replace(question, heavy=True) for key, question in questions.items()})
    _all_there({key: answer for key, answer in answers.items() if key not in optional})

    def judged(numbers: ConditionValues) -> RuleVerdict:
        excess = [
            (series, condition.lasting_s)
            for condition in numbers.conditions
            for series in _joined(answers, condition, windows)
        ]
        return judge_rule(excess, sample_times, enabled=numbers.enabled)

    return DryRun(
        key,
        datetime.fromtimestamp(sample_times.since, UTC),
        datetime.fromtimestamp(windows[-1].end, UTC),
        step,
        longest,
        judged(draft),
        judged(now) if before and now else None,
        _seconds(answers["known"].series, coarse),
        # Of a rule that measures absence, having no data is normal.
        None if "absent" in measure.value else _seconds(answers[VALUE].series, coarse),
        draft.left,
        tuple(
            dict.fromkeys(absence.detail for each in answers.values() for absence in each.missing)
        ),
        measure.drawn(answers, coarse),
    )


def excess_series(asker: Asker, expr: str, key: str) -> int:
    """Return the number of series of a user-written condition if it exceeds the limit, else 0.

    Raise `Refused` if the query fails.
    """
    length, *_ = RANGES[key]
    window = Window.ending(time.time(), length, _DRAWN[key])
    question = Question(f"count(\n{expr}\n)", window.end, window, "sum", heavy=True)
    answers = asker.ask({"count": question})
    _all_there(answers)
    counts = [
        value for series in answers["count"].series for value in series.values if value is not None
    ]
    most = int(max(counts, default=0))
    return most if most > MOST_SERIES else 0


def query_refused(fault: Fault) -> Refused:
    if fault.kind is FaultKind.BAD_QUERY:
        text = f"Prometheus rejected the expression: {fault.detail.rstrip('.')}."
        return Refused(Problem("expr", None, text, "Correct the expression.", "promql"))
    if fault.kind is FaultKind.TOO_SLOW:
        text = f"Evaluation timed out: {fault.detail.rstrip('.')}."
        remedy = f"Choose a shorter range. {NARROW_REMEDY}"
        return Refused(Problem("range", None, text, remedy, "too_slow"), status_code=503)
    if fault.kind is FaultKind.TOO_EXPENSIVE:
        text = f"The query exceeds a Prometheus limit: {fault.detail.rstrip('.')}."
        return Refused(Problem("expr", None, text, NARROW_REMEDY, "too_expensive"))
    text = f"Prometheus is unavailable. {fault.detail}"
    problem = Problem("", None, text, "Try again when Prometheus responds.", "not_known")
    return Refused(problem, status_code=503)


def _windows(
    moment: float, length: int, step: int, lasting_s: int
) -> tuple[SampleTimes, tuple[Window, ...]]:
    """Split the range into consecutive windows.

    They begin before the evaluated range, to tell which alerts were already firing.
    """
    end = int(moment) // step * step
    since = end - length
    points = length // step + -(-lasting_s // step) + 1
    start = end - (points - 1) * step
    windows = []
    for first in range(0, points, _AT_ONCE):
        last = min(first + _AT_ONCE, points) - 1
        windows.append(Window(start + first * step, start + last * step, step))
    return SampleTimes(start, step, since), tuple(windows)


def _questions(one: Condition, windows: Sequence[Window]) -> dict[str, Question]:
    # x ^ 0 is 1 for every x, infinity included, which JSON numbers cannot express.
    text = f"(\n{one.expr}\n) ^ 0"
    return {
        f"{place} {one.expr}": Question(text, window.end, window)
        for place, window in enumerate(windows)
    }


def _all_there(answers: Mapping[str, QueryResult]) -> None:
    for answer in answers.values():
        if answer.fault is not None:
            raise query_refused(answer.fault)


def _joined(
    answers: Mapping[str, QueryResult], one: Condition, windows: Sequence[Window]
) -> list[Series]:
    """Concatenate each series over all windows."""
    parts = [answers[f"{place} {one.expr}"].series for place in range(len(windows))]
    rows = [{series.labels: series.values for series in part} for part in parts]
    joined = []
    for labels in dict.fromkeys(labels for row in rows for labels in row):
        values: list[float | None] = []
        for row, window in zip(rows, windows, strict=True):
            values += row.get(labels, (None,) * window.points)
        joined.append(Series(labels, tuple(values)))
    return joined


def _seconds(lines: Sequence[Series], window: Window) -> int:
    there = sum(
        any(line.values[place] is not None for line in lines) for place in range(1, window.points)
    )
    return there * window.step
