"""Add the previous period to a panel: ghost lines, and differences in its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboards.boards.charts.series import StyledSeries, format_value, rounded
from dashboards.boards.panels.declarations import Panel
from dashboards.prometheus.http.client import Window

_DASH = "2px,4px"
_LINE_KINDS = ("lines", "stacked", "bars")


def add_previous_period(
    document: dict[str, Any],
    panel: Panel,
    drawn: Sequence[StyledSeries],
    before: Sequence[StyledSeries],
    window: Window,
) -> dict[str, Any]:
    figure, table = document["figure"], document["table"]
    if figure is not None and panel.kind in _LINE_KINDS:
        ghosts = _make_ghosts(panel, drawn, before, window, figure["data"])
        figure = {**figure, "data": [*figure["data"], *ghosts]}
    return {**document, "figure": figure, "table": _add_change_columns(table, panel, drawn, before)}


def _make_ghosts(
    panel: Panel,
    drawn: Sequence[StyledSeries],
    before: Sequence[StyledSeries],
    window: Window,
    lines: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    styles = {item.key: item.style for item in drawn}
    visible = {line.get("name") for line in lines}
    below = [0.0] * window.points
    ghosts = []
    for item in before:
        style = styles.get(item.key, item.style)
        values = item.values
        if panel.kind == "stacked":
            below = [base + (value or 0.0) for base, value in zip(below, values, strict=True)]
            values = tuple(below)
        if any(item.numbers) and (style.label in visible or item.key not in styles):
            ghosts.append(_make_ghost(f"{style.label} (previous)", style.colour, values, window))
    return ghosts


def _make_ghost(
    name: str, colour: str, values: tuple[float | None, ...], window: Window
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "mode": "lines",
        "x0": window.start * 1000,
        "dx": window.step * 1000,
        "y": rounded(values),
        "line": {"color": colour, "dash": _DASH, "width": 1.5},
        "opacity": 0.6,
        "connectgaps": False,
        "showlegend": False,
        "meta": "before",
    }


def _add_change_columns(
    table: dict[str, Any],
    panel: Panel,
    drawn: Sequence[StyledSeries],
    before: Sequence[StyledSeries],
) -> dict[str, Any]:
    """Match rows by their first cell; rows without a match existed only in the previous period.
    Compared are values over the whole range where there are any, else the means of the points.
    """
    labels = {item.key: item.style.label for item in reversed(drawn)}
    has_total = any(item.total is not None for item in drawn)
    compared = {item.style.label: _get_compared(item) for item in drawn}
    earlier = {labels.get(item.key, item.style.label): _get_compared(item) for item in before}
    width = len(table["head"])
    rows = [list(row) for row in table["rows"]]
    row_keys = {row[0] for row in rows}
    rows += [[name, *(["–"] * (width - 1))] for name in earlier if name not in row_keys]
    for row in rows:
        now, then = compared.get(row[0]), earlier.get(row[0])
        row += [format_value(panel.unit, then), _format_change(panel, now, then)]
    heads = ("Whole range (previous)" if has_total else "Mean (previous)", "Change")
    return {**table, "head": [*table["head"], *heads], "rows": rows}


def _get_compared(item: StyledSeries) -> float | None:
    if item.total is not None:
        return item.total
    numbers = item.numbers
    return sum(numbers) / len(numbers) if numbers else None


def _format_change(panel: Panel, now: float | None, then: float | None) -> str:
    """Format shares in percentage points, other values in per cent."""
    if now is None or then is None:
        return "–"
    if panel.unit == "share":
        return f"{(now - then) * 100:+.1f} pp"
    return f"{(now / then - 1) * 100:+.1f} %" if then else ("unchanged" if now == then else "new")
