"""Heat maps and big numbers. Plotly's cartesian bundle has no indicator trace: a number is text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

from dashboards.boards.charts.styled_series import StyledSeries, Values, keep_with_values, rounded
from dashboards.boards.charts.units import format_value
from dashboards.boards.panels.declarations import Panel
from dashboards.prometheus.http.client import Window

MAX_COLUMNS = 150  # of a heat map, about the resolution of a screen; each has twenty cells
_NUMBERS_HEIGHT = 120
_DAY_S = 86400
_GAP = 0.04
_LINE_TOP = 0.34


def heatmap(
    panel: Panel, drawn: list[StyledSeries], window: Window
) -> tuple[list[Any], dict[str, Any]]:
    """Return traces and layout changes. Empty buckets at both ends are omitted."""
    filled = [place for place, item in enumerate(drawn) if any(item.numbers)]
    rows = drawn[filled[0] : filled[-1] + 1] if filled else drawn[:1]
    size = -(-window.points // MAX_COLUMNS)
    trace = go.Heatmap(
        name=panel.title,
        x0=window.start * 1000 + (size - 1) * window.step * 500,
        dx=window.step * 1000 * size,
        y=[item.style.label for item in rows],
        z=[_downsample(item.values, size) for item in rows],
        zmin=0,
        colorscale="Cividis",
        hovertemplate="%{y} tokens: %{z:.3~g} requests<extra></extra>",
        hoverongaps=False,
        colorbar={"thickness": 10, "outlinewidth": 0, "nticks": 4, "tickformat": "~s"},
    )
    lengths = {"type": "category", "automargin": True, "fixedrange": True, "ticks": ""}
    return [trace], {"yaxis": lengths, "showlegend": False, "hovermode": "closest"}


def _downsample(values: Values, size: int) -> list[float | None]:
    columns: list[float | None] = []
    for start in range(0, len(values), size):
        numbers = [value for value in values[start : start + size] if value is not None]
        columns.append(float(f"{sum(numbers) / len(numbers):.4g}") if numbers else None)
    return columns


def numbers(
    panel: Panel, drawn: list[StyledSeries], window: Window
) -> tuple[list[Any], dict[str, Any]]:
    """Return a big number with a sparkline for each series. The first axes stay empty, so that
    annotations of the time axis do not appear.
    """
    shown = keep_with_values(drawn)
    width = 1 / len(shown)
    nothing = {"visible": False, "fixedrange": True, "type": "linear"}
    layout: dict[str, Any] = {
        "showlegend": False,
        "height": _NUMBERS_HEIGHT,
        "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
        "hovermode": "closest",
        "annotations": [],
        "xaxis": nothing,
        "yaxis": nothing,
    }
    traces = []
    for place, item in enumerate(shown):
        ending = str(place + 2)
        left, right = place * width, (place + 1) * width - _GAP
        layout[f"xaxis{ending}"] = {
            "type": "date",
            "domain": [left, right],
            "visible": False,
            "fixedrange": True,
            "anchor": f"y{ending}",
            "hoverformat": "%b %-d, %H:%M:%S UTC",
        }
        layout[f"yaxis{ending}"] = nothing | {
            "domain": [0, _LINE_TOP],
            "rangemode": "tozero",
            "anchor": f"x{ending}",
        }
        layout["annotations"] += _number_annotations(panel, item, window, left)
        traces.append(_sparkline(item, window, ending))
    return traces, layout


def _number_annotations(
    panel: Panel, item: StyledSeries, window: Window, left: float
) -> list[dict[str, Any]]:
    """Return the label and the number: the total of the range if known, else the last value, with
    its time unless it is current.
    """
    base = {"xref": "paper", "yref": "paper", "x": left, "y": 1, "showarrow": False}
    base |= {"xanchor": "left", "yanchor": "top", "align": "left"}
    place = max(at for at, value in enumerate(item.values) if value is not None)
    number = item.values[place] if item.total is None else item.total
    value, label = format_value(panel.unit, number), item.style.label
    found = [
        base | {"text": f"<b>{value}</b>", "yshift": -16, "font": {"size": 24}},
        base | {"text": label, "font": {"size": 12}},
    ]
    if item.total is None and place < len(item.values) - 1:
        when = datetime.fromtimestamp(window.start + place * window.step, UTC)
        day = "" if window.length_s <= _DAY_S else f"{when:%b} {when.day}, "
        found.append(base | {"text": f"at {day}{when:%H:%M}", "yshift": -46, "font": {"size": 12}})
    return found


def _sparkline(item: StyledSeries, window: Window, ending: str) -> go.Scatter:
    return go.Scatter(
        name=item.style.label,
        mode="lines",
        x0=window.start * 1000,
        dx=window.step * 1000,
        y=rounded(item.values),
        xaxis=f"x{ending}",
        yaxis=f"y{ending}",
        line={"color": item.style.colour, "width": 1.5},
        fill="tozeroy",
        connectgaps=False,
    )
