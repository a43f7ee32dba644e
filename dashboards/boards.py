"""A board as drawn: every panel's lines, or the one sentence that says why there are none.

Promises that nothing is ever empty without a reason, and that the reasons which look alike are told
apart: nothing happened (zero), nobody scrapes (not scraped, or down), the metric is not there in
this version (absent), Prometheus is away or not configured, or the data has stopped (stale). Each
comes with what to do. Must not know Django.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from dashboards import charts, queries
from dashboards.charts import Named
from dashboards.panels import Line, Panel, Range
from dashboards.prom import Answer, Problem, Series, Source, Window
from dashboards.queries import Scope

TABLE_ROWS = 20
# Data is stale when its newest sample is older than both.
_STALE_STEPS = 4
_STALE_S = 60
_MAX_LINES = 12


class State(StrEnum):
    OK = "ok"
    ZERO = "zero"
    NOT_SCRAPED = "not_scraped"
    DOWN = "down"
    ABSENT = "absent"
    STALE = "stale"
    AWAY = "away"
    NOT_CONFIGURED = "not_configured"
    BAD_QUERY = "bad_query"


@dataclass(frozen=True, slots=True)
class Notice:
    """Why a panel is as it is, and what to do. "" for a panel that needs no words."""

    state: State
    text: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    panel: Panel
    lines: tuple[Named, ...]
    notice: Notice
    figure: dict[str, Any]
    window: Window

    @property
    def table(self) -> dict[str, Any]:
        """The newest moments, and each line's newest value: the chart for who cannot see it."""
        moments = range(self.window.end, self.window.start - 1, -self.window.step)
        unit = self.panel.unit
        rows = []
        for back, moment in enumerate(moments):
            values = [line.values[-1 - back] for line in self.lines]
            if any(value is not None for value in values):
                rows.append(
                    (
                        datetime.fromtimestamp(moment, UTC),
                        [charts.shown(value, unit) for value in values],
                    )
                )
            if len(rows) == TABLE_ROWS:
                break
        return {"columns": [line.name for line in self.lines], "rows": rows}

    @property
    def label(self) -> str:
        """What the chart shows, in one sentence."""
        latest = ", ".join(
            f"{line.name} {charts.shown(line.last, self.panel.unit)}" for line in self.lines
        )
        return f"{self.panel.title}. Latest: {latest}." if latest else self.panel.title


def draw(panels: Sequence[Panel], endpoint: str, chosen: Range, source: Source) -> list[Drawn]:
    """Every panel, asked for together."""
    window = Window.ending_now(chosen.seconds, chosen.step)
    scope = Scope(endpoint, window_s=chosen.step)
    up_query = queries.targets_up(scope)
    wanted = {line.query(scope) for panel in panels for line in panel.lines}
    answers = source.range([up_query, *sorted(wanted)], window)
    up = answers[up_query]
    return [_draw(panel, scope, window, answers, up) for panel in panels]


def _draw(
    panel: Panel, scope: Scope, window: Window, answers: Mapping[str, Answer], up: Answer
) -> Drawn:
    found = [(line, answers[line.query(scope)]) for line in panel.lines]
    named = tuple(one for line, answer in found for one in _named(line, answer, window))[
        :_MAX_LINES
    ]
    notice = _notice(panel, window, [answer for _, answer in found], named, up)
    return Drawn(panel, named, notice, charts.figure(panel, named, window), window)


def _named(line: Line, answer: Answer, window: Window) -> list[Named]:
    """The answer's series under the names people know, in a stable order."""
    if not line.by:
        return [
            Named(line.name, line.role, charts.on_grid(series, window))
            for series in answer.series[:1]
        ]
    by_name = sorted((series.labels.get(line.by, ""), series) for series in answer.series)
    return [
        Named(name, name, charts.on_grid(series, window))
        for name, series in by_name
        if name and (_ever(series) or line.by in ("worker", "endpoint"))
    ]


def _ever(series: Series) -> bool:
    """Children exist from the start; those which never counted would only crowd the legend."""
    return any(series.values)


def _notice(
    panel: Panel, window: Window, answers: Sequence[Answer], lines: Sequence[Named], up: Answer
) -> Notice:
    for answer in (*answers, up):
        if answer.problem is not None:
            return _problem(answer)
    if lines and any(value for line in lines for value in line.values):
        return _freshness(window, lines, answers)
    if any(answer.series for answer in answers):
        return Notice(State.ZERO, "Zero.", panel.zero)
    return _missing(panel, up)


def _problem(answer: Answer) -> Notice:
    if answer.problem is Problem.NOT_CONFIGURED:
        fix = (
            "Install Prometheus (Debian: apt-get install prometheus) and start the console again "
            "with `make up`, or name a server in PROMETHEUS_URL."
        )
        return Notice(State.NOT_CONFIGURED, answer.message, fix)
    if answer.problem is Problem.BAD_QUERY:
        fix = "This is a fault of the console, not of yours. Please report it with this text."
        return Notice(State.BAD_QUERY, answer.message, fix)
    fix = (
        "Charts come back by themselves when it answers. If it stays away, read "
        "var/log/prometheus.log, or check PROMETHEUS_URL. Requests are not affected."
    )
    return Notice(State.AWAY, answer.message, fix)


def _freshness(window: Window, lines: Sequence[Named], answers: Sequence[Answer]) -> Notice:
    newest = max(
        (series.times[-1] for answer in answers for series in answer.series if series.times),
        default=0.0,
    )
    age = window.end - newest
    if not lines or age <= max(_STALE_STEPS * window.step, _STALE_S):
        return Notice(State.OK)
    since = datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    fix = "The process is stopped or no longer scraped. See the endpoint's page for what runs."
    return Notice(State.STALE, f"No data since {since}.", fix)


def _missing(panel: Panel, up: Answer) -> Notice:
    """No series at all: is nobody scraped, does nobody answer, or is the name not there?"""
    what = "worker" if panel.job == "vllm" else "router"
    kinds = {series.labels.get("job"): series for series in up.series}
    found = kinds.get(panel.job)
    if found is None:
        fix = (
            "Prometheus asks the console every few seconds what to scrape. Nothing is there while "
            "no process runs; otherwise see Status > Targets of Prometheus for what it says."
        )
        return Notice(State.NOT_SCRAPED, f"Not scraped: Prometheus knows no {what} here.", fix)
    if not found.last:
        fix = f"See the endpoint's page: the {what} may be starting, stopped or failing."
        return Notice(State.DOWN, f"Scraped in vain: no {what} answers Prometheus.", fix)
    fix = (
        f"The {what} answers but shows no {panel.metric}. It is of a version without this metric, "
        "or has only just started: wait a minute."
    )
    return Notice(State.ABSENT, "Metric absent.", fix)
