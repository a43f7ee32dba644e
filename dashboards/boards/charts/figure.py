"""Render series as a Plotly figure, a table and a text for screen readers.

Times are epoch milliseconds: the page replaces colours by those of its theme (panels.css) and
shifts times into the reader's zone (charts.js). Missing values are gaps. Plotly's
cartesian bundle has no indicator trace: a big number is text. Figures are plain documents, which
tests validate: Plotly's own classes take 15 times the CPU time.
"""

from __future__ import annotations

from typing import Any

from console.core.local_time import get_axis_zone, localize
from dashboards.boards.charts.series import (
    StyledSeries,
    Values,
    axis_format,
    format_value,
    keep_with_values,
    rounded,
)
from dashboards.boards.panels.declarations import Panel
from dashboards.prometheus.http.client import Window

MAX_COLUMNS = 150  # of a heat map, about the resolution of a screen; each has twenty cells
_NUMBERS_HEIGHT = 120
_DAY_S = 86400
_GAP = 0.04
_LINE_TOP = 0.34
_HEIGHT = 220
_TRANSPARENT = "rgba(0,0,0,0)"
_NO_TEMPLATE = {"data": {"scatter": [{"type": "scatter"}]}}  # Plotly's "none"
_CIVIDIS = (
    *("#00224e", "#123570", "#3b496c", "#575d6d", "#707173"),
    *("#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"),
)
_DAY_MS = 86_400_000
_TICKS = [
    {"dtickrange": [None, _DAY_MS - 1], "value": "%H:%M"},
    {"dtickrange": [_DAY_MS, None], "value": "%b %-d"},
]
_GRID_COLOUR = "rgba(128,128,128,0.25)"
# Closer than Plotly's own, which break up lines of noisy values.
DASHES = {
    "dash": "8px,3px",
    "dot": "3px,2px",
    "dashdot": "8px,3px,2px,3px",
    "longdash": "14px,4px",
    "longdashdot": "14px,4px,2px,4px",
}


def figure(panel: Panel, drawn: list[StyledSeries], window: Window) -> dict[str, Any] | None:
    values = keep_with_values(drawn)
    happened = [item for item in values if any(item.numbers)]
    if panel.hides_zeros and happened:
        values = happened
    if not values:
        return None
    layout = _layout(panel, values, window)
    if panel.kind == "heatmap":
        traces, unlike = _heatmap(panel, drawn, window)
    elif panel.kind == "numbers":
        traces, unlike = _numbers(panel, drawn, window)
    else:
        make = _bar if panel.kind == "bars" else _trace
        traces, unlike = [make(panel, item, window) for item in values], {}
    return {"data": traces, "layout": layout | unlike}


def table(panel: Panel, drawn: list[StyledSeries]) -> dict[str, Any]:
    """Return one row per series, including zero series that the chart hides. A series with a value
    over the whole range shows it instead of the mean of its points, which is not the same for
    ratios and percentiles.
    """
    has_total = _has_total(drawn)
    rows = []
    for item in drawn:
        numbers = item.numbers
        picked: tuple[float | None, ...] = (None,) * 4
        if numbers:
            last, least, most = item.values[-1], min(numbers), max(numbers)
            if has_total:
                picked = (item.total, last, least, most)
            else:
                picked = (last, sum(numbers) / len(numbers), least, most)
        rows.append([item.style.label, *(format_value(panel.unit, value) for value in picked)])
    head = ["Whole range", "Last"] if has_total else ["Last", "Mean"]
    return {"head": ["Series", *head, "Min", "Max"], "rows": rows}


def make_text_alternative(panel: Panel, drawn: list[StyledSeries]) -> str:
    """Return the text alternative: each line's latest value, or a heat map's fullest bucket."""
    if panel.kind == "heatmap":
        fullest = max(keep_with_values(drawn), key=lambda item: item.mean, default=None)
        if fullest is None or not any(fullest.numbers):
            return f"{panel.title}. No data."
        return f"{panel.title}. Most frequent: {fullest.style.label} tokens."
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


def _trace(panel: Panel, item: StyledSeries, window: Window) -> dict[str, Any]:
    stacked = panel.kind == "stacked"
    style = item.style
    trace: dict[str, Any] = {
        **_series(item, window),
        "mode": "lines",
        "line": {
            "color": style.colour,
            "dash": DASHES.get(style.dash, style.dash),
            "width": 1 if stacked else 2,
        },
        "connectgaps": False,
    }
    lonely = _isolated_points(item.values)
    if not stacked and any(lonely):
        # A value between two gaps draws no line: without a marker it would be invisible.
        sizes = [5 if alone else 0 for alone in lonely]
        trace |= {"mode": "lines+markers", "marker": {"size": sizes, "color": style.colour}}
    if stacked:
        if None in item.values:
            # Plotly stacks a gap as zero: its edge would be a line without measurements.
            trace["line"]["width"] = 0
        trace["stackgroup"] = "all"
        if style.hatch:
            pattern = {"shape": style.hatch, "size": 7, "solidity": 0.25, "fillmode": "overlay"}
            trace["fillpattern"] = pattern
    return trace


def _series(item: StyledSeries, window: Window, kind: str = "scatter") -> dict[str, Any]:
    return {
        "type": kind,
        "name": item.style.label,
        "x0": window.start * 1000,
        "dx": window.step * 1000,
        "y": rounded(item.values),
    }


def _bar(_panel: Panel, item: StyledSeries, window: Window) -> dict[str, Any]:
    style = item.style
    return _series(item, window, "bar") | {
        "marker": {
            "color": style.colour,
            "line": {"width": 0},
            "pattern": {"shape": style.hatch, "size": 5, "solidity": 0.25},
        }
    }


def _format_hover_time(window: Window) -> str:
    return f"%b %-d, %H:%M:%S {get_axis_zone(window.end)['name']}"


def _isolated_points(values: Values) -> list[bool]:
    padded = (None, *values, None)
    return [
        middle is not None and before is None and after is None
        for before, middle, after in zip(padded, padded[1:], padded[2:], strict=False)
    ]


def _layout(panel: Panel, shown: list[StyledSeries], window: Window) -> dict[str, Any]:
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
    value_axis |= axis_format(panel.unit, highest)
    if panel.unit == "share" and panel.of_whole:
        value_axis["range"] = [0, 1.02]
    return {
        "template": _NO_TEMPLATE,
        "uirevision": "emberline",  # constant: zoom and hidden lines survive a poll
        "height": _HEIGHT,
        "margin": {"l": 48, "r": 8, "t": 8, "b": 24},
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "hovermode": "x unified",
        "barmode": "stack",
        "bargap": 0,
        "showlegend": False,  # the page has legends of its own
        "hoverlabel": {"namelength": -1},
        "font": {"family": "inherit", "size": 12},
        "xaxis": {
            # No range: all lines span the whole window, and a range that changes with each poll
            # would reset the zoom.
            "type": "date",
            "gridcolor": _GRID_COLOUR,
            "tickformatstops": _TICKS,
            "hoverformat": _format_hover_time(window),
            "tickangle": 0,
            "ticklabelstandoff": 6,  # keeps the first time off the lowest value's label
            "automargin": True,
            "nticks": 6,
        },
        "yaxis": value_axis,
    }


def _heatmap(
    panel: Panel, drawn: list[StyledSeries], window: Window
) -> tuple[list[Any], dict[str, Any]]:
    """Return traces and layout changes. Empty buckets at both ends are omitted."""
    filled = [place for place, item in enumerate(drawn) if any(item.numbers)]
    rows = drawn[filled[0] : filled[-1] + 1] if filled else drawn[:1]
    size = -(-window.points // MAX_COLUMNS)
    trace = {
        "type": "heatmap",
        "name": panel.title,
        "x0": window.start * 1000 + (size - 1) * window.step * 500,
        "dx": window.step * 1000 * size,
        "y": [item.style.label for item in rows],
        "z": [_downsample(item.values, size) for item in rows],
        "zmin": 0,
        "colorscale": [[index / 9, colour] for index, colour in enumerate(_CIVIDIS)],
        "hovertemplate": "%{y} tokens: %{z:.3~g} requests<extra></extra>",
        "hoverongaps": False,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "nticks": 4, "tickformat": "~s"},
    }
    lengths = {"type": "category", "automargin": True, "fixedrange": True, "ticks": ""}
    return [trace], {"yaxis": lengths, "hovermode": "closest"}


def _downsample(values: Values, size: int) -> list[float | None]:
    columns: list[float | None] = []
    for start in range(0, len(values), size):
        numbers = [value for value in values[start : start + size] if value is not None]
        columns.append(float(f"{sum(numbers) / len(numbers):.4g}") if numbers else None)
    return columns


def _numbers(
    panel: Panel, drawn: list[StyledSeries], window: Window
) -> tuple[list[Any], dict[str, Any]]:
    """Return a big number with a sparkline for each series. The first axes stay empty, so that
    annotations of the time axis do not appear.
    """
    values = keep_with_values(drawn)
    width = 1 / len(values)
    nothing = {"visible": False, "fixedrange": True, "type": "linear"}
    layout: dict[str, Any] = {
        "height": _NUMBERS_HEIGHT,
        "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
        "hovermode": "closest",
        "annotations": [],
        "xaxis": nothing,
        "yaxis": nothing,
    }
    traces = []
    for place, item in enumerate(values):
        ending = str(place + 2)
        left, right = place * width, (place + 1) * width - _GAP
        layout[f"xaxis{ending}"] = {
            "type": "date",
            "domain": [left, right],
            "visible": False,
            "fixedrange": True,
            "anchor": f"y{ending}",
            "hoverformat": _format_hover_time(window),
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
    place = max(index for index, value in enumerate(item.values) if value is not None)
    number = item.values[place] if item.total is None else item.total
    value, label = format_value(panel.unit, number), item.style.label
    number_annotations = [
        base | {"text": f"<b>{value}</b>", "yshift": -16, "font": {"size": 24}},
        base | {"text": label, "font": {"size": 12}},
    ]
    if item.total is None and place < len(item.values) - 1:
        when = localize(window.start + place * window.step)
        day = "" if window.length_s <= _DAY_S else f"{when:%b} {when.day}, "
        number_annotations.append(
            base | {"text": f"at {day}{when:%H:%M}", "yshift": -46, "font": {"size": 12}}
        )
    return number_annotations


def _sparkline(item: StyledSeries, window: Window, ending: str) -> dict[str, Any]:
    return _series(item, window) | {
        "mode": "lines",
        "xaxis": f"x{ending}",
        "yaxis": f"y{ending}",
        "line": {"color": item.style.colour, "width": 1.5},
        "fill": "tozeroy",
        "connectgaps": False,
    }
