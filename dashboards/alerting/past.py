"""When a rule's alerts held, and what it measured: from ALERTS and the rule's own expression.

Promises words instead where Prometheus cannot be asked, and a chart that says its numbers in words
too. Must not know Django.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dashboards import queries
from dashboards.alerts import Only, Rule, Settings
from dashboards.alerts.parameter import in_words, said
from dashboards.benchmarks.charts import Chart, drawn
from dashboards.boards import fault_message
from dashboards.prom import Asker, Question, Series, Window
from dashboards.queries import Scope

RANGES = {"1h": (3600, 15), "6h": (6 * 3600, 60), "24h": (24 * 3600, 300), "7d": (7 * 86_400, 1800)}
DEFAULT = "24h"
MOST_LINES = 6  # more are no chart any more
_MOST_EPISODES = 50
_THRESHOLD = "Threshold"
_OWN = ("__name__", "alertname", "alertstate", "severity", "job", "instance", "endpoint_name")


@dataclass(frozen=True, slots=True)
class Episode:
    """`until` None: it fires still."""

    whose: str
    since: datetime
    until: datetime | None
    lasted: str


@dataclass(frozen=True, slots=True)
class Past:
    """`left` lines are not in the chart. `why` says why nothing is known."""

    key: str
    episodes: tuple[Episode, ...] = ()
    chart: Chart | None = None
    left: int = 0
    step: str = ""
    why: str = ""


def past(
    asker: Asker, rule: Rule | None, name: str, scope: Scope, settings: Settings, key: str
) -> Past:
    """`rule` None: one of people's own, which has no value apart from its condition."""
    key = key if key in RANGES else DEFAULT
    length, step = RANGES[key]
    window = Window.ending(time.time(), length, step)
    asked = {"alerts": Question(queries.alerts_of(name, scope), window.end, window)}
    only = _only(scope)
    if rule is not None and (rule.per_endpoint or only == Only()):
        chosen = settings.of(rule, scope.endpoint)
        asked["value"] = Question(rule.value(chosen, only), window.end, window)
    answers = asker.ask(asked)
    fault = answers["alerts"].fault
    if fault is not None:
        message = fault_message(fault)
        return Past(key, why=f"{message.title}: {message.text}")
    episodes = [one for series in answers["alerts"].series for one in _episodes(series, window)]
    episodes.sort(key=lambda one: one.since, reverse=True)
    lines = answers["value"].series if "value" in answers else ()
    chart = _chart(rule, lines, settings, scope, window) if rule is not None else None
    left = max(0, len(lines) - MOST_LINES)
    return Past(key, tuple(episodes[:_MOST_EPISODES]), chart, left, in_words(step))


def _only(scope: Scope) -> Only:
    if scope.endpoint:
        return Only((scope.endpoint,))
    # No endpoint is called "-".
    return Only() if scope.among is None else Only(scope.among or ("-",))


def _episodes(series: Series, window: Window) -> list[Episode]:
    whose = _named(series)
    found: list[list[int]] = []
    for place, value in enumerate(series.values):
        if value is None:
            continue
        if found and found[-1][1] == place - 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return [_episode(whose, first, last, window) for first, last in found]


def _episode(whose: str, first: int, last: int, window: Window) -> Episode:
    begin, end = (window.start + place * window.step for place in (first, last))
    ended = None if last == window.points - 1 else datetime.fromtimestamp(end + window.step, UTC)
    seconds = max(window.step, end - begin)
    rounded = seconds // 60 * 60 if seconds >= 60 else seconds
    return Episode(whose, datetime.fromtimestamp(begin, UTC), ended, in_words(rounded))


def _chart(
    rule: Rule, lines: Sequence[Series], settings: Settings, scope: Scope, window: Window
) -> Chart | None:
    """The highest, as they are now or were last; and the threshold, where all have one."""

    def say(value: float | None) -> str:
        return "–" if value is None else said(rule.unit, value)

    busiest = sorted(lines, key=lambda one: -(one.latest or 0.0))[:MOST_LINES]
    named = [(_named(one), f"n{place}", one.values) for place, one in enumerate(busiest)]
    if not any(one.latest is not None for one in busiest):
        return None
    threshold = settings.of(rule, scope.endpoint).values.get("threshold")
    if threshold is not None:
        named.append((_THRESHOLD, "threshold", (threshold,) * window.points))
    marks = [_clock(window, part / 4) for part in range(5)]
    return drawn("measured", "What it measures", named, marks, say)


def _clock(window: Window, share: float) -> str:
    moment = datetime.fromtimestamp(window.start + share * window.length_s, UTC)
    return moment.strftime("%b %-d" if window.length_s > 2 * 86_400 else "%H:%M")


def _named(series: Series) -> str:
    """What tells it apart, in few words."""
    pairs = [(key, value) for key, value in series.labels if key not in _OWN and value]
    whose = series.label("endpoint") or series.label("endpoint_name")
    words = [value for key, value in pairs if key not in ("endpoint", "namespace")]
    return ", ".join([*([whose] if whose else []), *words]) or "all"
