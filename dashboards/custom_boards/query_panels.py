"""PromQL panels: their queries, sent together, and the display names of their series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, cast

from dashboards.boards.answers import BoardQuery
from dashboards.boards.charts.series import StyledSeries, style_series
from dashboards.boards.panels import Panel
from dashboards.boards.panels.declarations import PanelLine, Range, Unit
from dashboards.boards.results.board import BoardResult, PanelResult
from dashboards.boards.results.verdicts import Message, State, make_fault_message
from dashboards.custom_boards.documents import BoardPanel
from dashboards.prometheus.http.client import (
    Asker,
    Fault,
    FaultKind,
    QueryResult,
    Question,
    Series,
    Window,
)
from dashboards.prometheus.http.federation import SOURCE
from dashboards.prometheus.http.user_query import AGGREGATE_REMEDY, MOST_SERIES, find_unselective

_NAME: Final = "legend"  # label with the display name of a series
_UNSELECTIVE: Final = QueryResult(
    fault=Fault(FaultKind.BAD_QUERY, "A selector has no metric name and would select all series.")
)
_LABEL = re.compile(r"\{\{\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*\}\}")


def measure_queries(
    asker: Asker, panels: Sequence[BoardPanel], board_query: BoardQuery, end: float
) -> BoardResult:
    """Return the results of PromQL panels, queried together."""
    chosen = board_query.range
    window = Window.ending(end, chosen.length_s, chosen.step_s)
    earlier = window.previous
    questions = {
        f"{key}{panel.id}": Question(fill_in(panel.query, chosen), part.end, part, heavy=True)
        for panel in panels
        if not find_unselective(panel.query)
        for key, part in (("", window), *((("before_", earlier),) if board_query.compare else ()))
    }
    answers = asker.ask(questions)
    panels_judged = [
        _judge(
            panel,
            answers.get(panel.id, _UNSELECTIVE),
            answers.get(f"before_{panel.id}", QueryResult()),
        )
        for panel in panels
    ]
    away = [answers[item.panel.id].fault for item in panels_judged if item.state == "prometheus"]
    fault = make_fault_message(away[0]) if away and away[0] else None
    return BoardResult(end, chosen, window, fault, "", panels_judged, board_query.compare)


def fill_in(query: str, chosen: Range) -> str:
    """Replace the time variables of Grafana, so that its queries can be pasted."""
    times = {
        "__rate_interval": max(4 * chosen.step_s, 20),
        "__interval": chosen.step_s,
        "__range": chosen.length_s,
    }
    for name, seconds in times.items():
        query = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", f"{seconds}s", query)
    return query


def as_panel(item: BoardPanel) -> Panel:
    """Return the panel that the page shows: the built-in one, or that of a query."""
    source = item.source
    if source is not None:
        return replace(source, id=item.id, title=item.title or source.title)
    unit = cast(Unit, item.unit)
    lines = (PanelLine("", by=_NAME),)
    title = item.title or item.panel or "Panel"
    return Panel(item.id, title, item.query, lines, unit, job="", metric="", since="")


def _judge(item: BoardPanel, answer: QueryResult, before: QueryResult) -> PanelResult:
    panel = as_panel(item)
    if len(answer.series) > MOST_SERIES:
        title = f"{len(answer.series)} series"
        text = f"A panel shows at most {MOST_SERIES}."
        too_many = Message("warning", title, text, AGGREGATE_REMEDY)
        return PanelResult(panel, "too_slow", too_many, [], [])
    line = panel.lines[0]
    drawn = style_series(panel, [(line, _with_names(item, answer.series))])
    earlier = style_series(panel, [(line, _with_names(item, before.series))])
    state, message = _describe(answer.fault, drawn)
    return PanelResult(panel, state, message, drawn, earlier)


def _describe(fault: Fault | None, drawn: Sequence[StyledSeries]) -> tuple[State, Message | None]:
    if fault is None:
        if any(item.numbers for item in drawn):
            return "ok", None
        text = "The query returned no values in this range."
        return "quiet", Message("info", "No data in this range", text, "")
    if fault.kind is FaultKind.BAD_QUERY:
        title = "Prometheus rejected the query"
        return "bad_query", Message("danger", title, fault.detail, "")
    if fault.kind in (FaultKind.TOO_SLOW, FaultKind.TOO_EXPENSIVE):
        return "too_slow", make_fault_message(fault)
    return "prometheus", make_fault_message(fault)


def _with_names(item: BoardPanel, series: Iterable[Series]) -> tuple[Series, ...]:
    """Replace the labels by the display name of the legend template; the source stays a label."""
    return tuple(
        Series(
            (
                (_NAME, name_series(item, item_series)),
                *(pair for pair in item_series.labels if pair[0] == SOURCE),
            ),
            item_series.values,
        )
        for item_series in series
    )


def name_series(item: BoardPanel, series: Series) -> str:
    labels = dict(series.labels)
    if item.legend:
        name = _LABEL.sub(lambda match: labels.get(match[1], ""), item.legend).strip()
        return name or item.title
    metric = labels.pop("__name__", "")
    labels.pop(SOURCE, "")
    text = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{text}}}" if text else metric or item.title
