"""History of a rule: when its alerts fired (ALERTS) and values of its expression.

If Prometheus cannot be queried, the result holds the reason. The chart has a text alternative.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dashboards.alerts.evaluation.intervals import SampleRun, find_runs
from dashboards.alerts.evaluation.measure import (
    Measure,
    MeasureChart,
    built_in_measure,
    series_label,
    user_rule_measure,
)
from dashboards.alerts.rules.parameter import describe_duration
from dashboards.alerts.rules.rule import EndpointSelection, Rule
from dashboards.alerts.rules.rule_file import Settings, UserRule
from dashboards.boards import queries
from dashboards.boards.queries import Scope
from dashboards.boards.results.board import make_fault_message
from dashboards.prometheus.http.client import Asker, Question, Window

RANGES = {
    "1h": (3600, 15),
    "6h": (6 * 3600, 60),
    "24h": (24 * 3600, 300),
    "7d": (7 * 86_400, 1800),
    "30d": (30 * 86_400, 7200),
}
DEFAULT = "24h"
_MOST_EPISODES = 50


@dataclass(frozen=True, slots=True)
class Episode:
    """Time in which a rule fired. `until` is None while the alert fires."""

    whose: str
    since: datetime
    until: datetime | None
    lasted: str


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """Past values and firings of a rule. `why`: reason why nothing is known."""

    key: str
    episodes: tuple[Episode, ...] = ()
    drawing: MeasureChart = field(default_factory=MeasureChart)
    step: str = ""
    why: str = ""


def query_history(
    asker: Asker, rule: Rule | UserRule, scope: Scope, settings: Settings, key: str
) -> RuleHistory:
    """Return the history; of a user-written rule the measure is the compared expression."""
    key = key if key in RANGES else DEFAULT
    length, step = RANGES[key]
    window = Window.ending(time.time(), length, step)
    # Each point covers the time since the previous one, so that short alerts are not missed.
    fired = f"last_over_time({queries.alerts_of(rule.name, scope)}[{step}s])"
    questions = {"alerts": Question(fired, window.end, window)}
    measure = _measure(rule, scope, settings)
    questions |= measure.questions(window) if measure else {}
    answers = asker.ask(questions)
    fault = answers["alerts"].fault
    if fault is not None:
        message = make_fault_message(fault)
        return RuleHistory(key, why=f"{message.title}: {message.text}")
    episodes = [
        _episode(series_label(series), run, window)
        for series in answers["alerts"].series
        for run in find_runs(series.values)
    ]
    episodes.sort(key=lambda one: one.since, reverse=True)
    drawn = measure.drawn(answers, window) if measure else MeasureChart()
    return RuleHistory(key, tuple(episodes[:_MOST_EPISODES]), drawn, describe_duration(step))


def _measure(rule: Rule | UserRule, scope: Scope, settings: Settings) -> Measure | None:
    """Return None if the measure has no endpoint label and the viewer may not see all endpoints."""
    if isinstance(rule, UserRule):
        return user_rule_measure(rule.expr)
    # No endpoint is named "-".
    names = (scope.endpoint,) if scope.endpoint else (scope.among or ("-",))
    only = EndpointSelection(names if scope.endpoint or scope.among is not None else ())
    if not rule.per_endpoint and only.names:
        return None
    return built_in_measure(rule, settings.of(rule, scope.endpoint), only)


def _episode(whose: str, run: SampleRun, window: Window) -> Episode:
    begin, end = (window.start + place * window.step for place in (run.first, run.last))
    over = run.last < window.points - 1
    ended = datetime.fromtimestamp(end + window.step, UTC) if over else None
    seconds = max(window.step, end - begin)
    rounded = seconds // 60 * 60 if seconds >= 60 else seconds
    return Episode(whose, datetime.fromtimestamp(begin, UTC), ended, describe_duration(rounded))
