"""Render series as a Plotly figure, a table and a text for screen readers.

Colours work on white and on black. Missing values are gaps.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from dashboards.boards.charts import kinds, units
from dashboards.boards.charts.styled_series import StyledSeries, Values, keep_with_values, rounded
from dashboards.boards.charts.units import format_value
from dashboards.boards.panels.declarations import Panel
from dashboards.prometheus.http.client import Window

_HEIGHT = 280
_TRANSPARENT = "rgba(0,0,0,0)"
_DAY_MS = 86_400_000
_TICKS = [
    {"dtickrange": [None, _DAY_MS - 1], "value": "%H:%M"},
    {"dtickrange": [_DAY_MS, None], "value": "%b %-d"},
]
_GRID_COLOUR = "rgba(128,128,128,0.25)"


def figure(panel: Panel, drawn: list[StyledSeries], window: Window) -> dict[str, Any] | None:
    shown = keep_with_values(drawn)
    happened = [item for item in shown if any(item.numbers)]
    if panel.hides_zeros and happened:
        shown = happened
    if not shown:
        return None
    layout = _layout(panel, shown)
    if panel.kind == "heatmap":
        traces, unlike = kinds.heatmap(panel, drawn, window)
    elif panel.kind == "numbers":
        traces, unlike = kinds.numbers(panel, drawn, window)
    else:
        make = _bar if panel.kind == "bars" else _trace
        traces = [make(panel, item, window) for item in shown]
        # Zero series need no distinct names in the legend.
        unlike = {"showlegend": bool(happened) or panel.kind != "bars"}
    made: dict[str, Any] = go.Figure(data=traces, layout=layout | unlike).to_plotly_json()
    return made


def table(panel: Panel, drawn: list[StyledSeries]) -> dict[str, Any]:
    """Return one row per series, including zero series that the chart hides."""
    rows = []
    for item in drawn:
        numbers = item.numbers
        picked: tuple[float | None, ...] = (None,) * 4
        if numbers:
            last = item.values[-1] if item.total is None else item.total
            picked = (last, sum(numbers) / len(numbers), min(numbers), max(numbers))
        rows.append([item.style.label, *(format_value(panel.unit, value) for value in picked)])
    first = "Whole range" if _has_total(drawn) else "Last"
    return {"head": ["", first, "Mean", "Lowest", "Highest"], "rows": rows}


def make_text_alternative(panel: Panel, drawn: list[StyledSeries]) -> str:
    """Return the text alternative: each line's latest value, or a heat map's fullest bucket."""
    if panel.kind == "heatmap":
        fullest = max(keep_with_values(drawn), key=lambda item: item.mean, default=None)
        if fullest is None or not any(fullest.numbers):
            return f"{panel.title}. No data."
        return f"{panel.title}. Most have {fullest.style.label} tokens."
    parts = [
        f"{item.style.label} "
        f"{format_value(panel.unit, item.values[-1] if item.total is None else item.total)}"
        for item in drawn
        if item.numbers and (any(item.numbers) or not panel.hides_zeros)
    ]
    when = "Over the range" if _has_total(drawn) else "Last"
    return f"{panel.title}. {when}: {'; '.join(parts)}." if parts else f"{panel.title}. No data."


def _has_total(drawn: list[StyledSeries]) -> bool:
    return any(item.total is not None for item in drawn)


def _trace(panel: Panel, item: StyledSeries, window: Window) -> go.Scatter:
    stacked = panel.kind == "stacked"
    style = item.style
    trace = go.Scatter(
        name=style.label,
        mode="lines",
        x0=window.start * 1000,
        dx=window.step * 1000,
        y=rounded(item.values),
        line={"color": style.colour, "dash": style.dash, "width": 1.5 if stacked else 2},
        connectgaps=False,
    )
    lonely = _isolated_points(item.values)
    if not stacked and any(lonely):
        # A value between two gaps draws no line: without a marker it would be invisible.
        sizes = [5 if alone else 0 for alone in lonely]
        trace.update(mode="lines+markers", marker={"size": sizes, "color": style.colour})
    if stacked:
        if None in item.values:
            # Plotly stacks a gap as zero: its edge would be a line without measurements.
            trace.update(line={"width": 0})
        pattern = {"shape": style.hatch, "size": 7, "solidity": 0.25, "fillmode": "overlay"}
        trace.update(stackgroup="all", fillpattern=pattern if style.hatch else None)
    return trace


def _bar(_panel: Panel, item: StyledSeries, window: Window) -> go.Bar:
    style = item.style
    return go.Bar(
        name=style.label,
        x0=window.start * 1000,
        dx=window.step * 1000,
        y=rounded(item.values),
        marker={
            "color": style.colour,
            "line": {"width": 0},
            "pattern": {"shape": style.hatch, "size": 5, "solidity": 0.25},
        },
    )


def _isolated_points(values: Values) -> list[bool]:
    padded = (None, *values, None)
    return [
        middle is not None and before is None and after is None
        for before, middle, after in zip(padded, padded[1:], padded[2:], strict=False)
    ]


def _layout(panel: Panel, shown: list[StyledSeries]) -> dict[str, Any]:
    value_axis: dict[str, Any] = {
        "rangemode": "tozero",
        "gridcolor": _GRID_COLOUR,
        "zerolinecolor": _GRID_COLOUR,
        "fixedrange": True,
        "automargin": True,
        "ticklabelstandoff": 4,
        "nticks": 6,
    }
    heights = [max(item.numbers) for item in shown]
    highest = sum(heights) if panel.kind == "stacked" else max(heights)
    value_axis |= units.axis_format(panel.unit, highest)
    if panel.unit == "share" and panel.of_whole:
        value_axis["range"] = [0, 1.02]
    return {
        "template": "none",
        "uirevision": "emberline",  # constant: zoom and hidden lines survive a poll
        "height": _HEIGHT + 10 * max(0, len(shown) - 4),
        "margin": {"l": 48, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "hovermode": "x unified",
        "barmode": "stack",
        "bargap": 0,
        "showlegend": True,
        "hoverlabel": {"namelength": -1},
        "legend": {
            "orientation": "h",
            "x": 0,
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "font": {"family": "inherit", "size": 12},
        "xaxis": {
            # No range: all lines span the whole window, and a range that changes with each poll
            # would reset the zoom.
            "type": "date",
            "gridcolor": _GRID_COLOUR,
            "tickformatstops": _TICKS,
            "hoverformat": "%b %-d, %H:%M:%S UTC",
            "tickangle": 0,
            "ticklabelstandoff": 6,  # keeps the first time off the lowest value's label
            "automargin": True,
            "nticks": 6,
        },
        "yaxis": value_axis,
    }
