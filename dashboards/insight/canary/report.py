"""Rows and Plotly figures of a canary's comparison. Pure.

Colours are those of the charts' palette; the page replaces them by the shades of its theme
(panels.css).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from console.core.local_time import get_axis_zone, localize
from dashboards.boards.panels.styles import BLUE, GREY, ORANGE
from routing.analysis.canary import ARMS, CanaryResult, relative
from routing.analysis.sequential import Interval

Point = Mapping[str, Any]
COLOURS = {"control": BLUE, "candidate": ORANGE}
_BAND = "rgba(230,159,0,0.2)"
_GRID = "rgba(128,128,128,0.25)"
_TRANSPARENT = "rgba(0,0,0,0)"
_HEIGHT = 240
_TALL = 340
_MEASURES = {"ttft": "TTFT", "hit": "Cache hit rate", "errors": "Error rate"}
_LOWER_IS_BETTER = {"ttft": True, "hit": False, "errors": True}
_DIFFERENCES = {
    "ttft": ("TTFT difference (%)", "Candidate against control, mean of log TTFT per session."),
    "hit": ("Hit rate difference (points)", "Candidate minus control, mean per session."),
    "errors": ("Error rate difference (points)", "Candidate minus control, mean per session."),
}


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """One measure; `level`: good, bad or "" if undecided."""

    name: str
    label: str
    difference: str = "–"
    interval: str = "–"
    conclusion: str = "Too few ended sessions"
    level: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    id: str
    title: str
    about: str
    spoken: str
    figure: dict[str, Any]

    def data(self) -> dict[str, Any]:
        return {"id": self.id, "spoken": self.spoken, "figure": self.figure}


def measure_rows(result: CanaryResult) -> list[MeasureRow]:
    return [_row(name, result.intervals.get(name)) for name in _MEASURES]


def _row(name: str, one: Interval | None) -> MeasureRow:
    label = _MEASURES[name]
    if one is None:
        return MeasureRow(name, label)
    middle, low, high = (_shown(name, value) for value in (one.difference, one.low, one.high))
    unit = "%" if name == "ttft" else "points"
    difference = f"{middle:+.1f} {unit}"
    interval = f"{low:+.1f} to {high:+.1f} {unit}"
    if one.low <= 0 <= one.high:
        largest = max(abs(low), abs(high))
        text = f"No difference larger than {largest:.1f} {unit}"
        return MeasureRow(name, label, difference, interval, text)
    is_good = (one.high < 0) == _LOWER_IS_BETTER[name]
    text = f"{'Lower' if one.high < 0 else 'Higher'} with the candidate"
    return MeasureRow(name, label, difference, interval, text, "good" if is_good else "bad")


def _shown(name: str, value: float) -> float:
    """Return a difference in per cent (TTFT) or percentage points."""
    return 100 * (relative(value) if name == "ttft" else max(-1.0, min(1.0, value)))


def charts(history: Sequence[Point], strategies: Mapping[str, str]) -> list[Chart]:
    """Return the charts of all results so far; none before the first."""
    if not history:
        return []
    charts = [_difference_chart(name, history) for name in _MEASURES]
    charts += [_quantile_chart(history, strategies)]
    for key, title, about, scale in (
        (
            "hit_rate",
            "Cache hit rate (%)",
            "Cached share of the prompt tokens since the start.",
            100,
        ),
        ("errors", "Failed requests", "Since the start.", 1),
        ("sessions", "Ended sessions", "Since the start; the test is based on them.", 1),
    ):
        charts.append(_arm_chart(key, title, about, scale, history, strategies))
    return charts


def _difference_chart(name: str, history: Sequence[Point]) -> Chart:
    title, about = _DIFFERENCES[name]
    points = [point for point in history if point["intervals"].get(name)]
    times = _times(points)
    rows = [[_shown(name, value) for value in point["intervals"][name]] for point in points]
    middle, low, high = ([round(row[index], 3) for row in rows] for index in range(3))
    edge = {"width": 0, "color": ORANGE}
    traces = [
        go.Scatter(x=times, y=low, mode="lines", line=edge, name="Lower bound", showlegend=False),
        go.Scatter(
            x=times,
            y=high,
            mode="lines",
            line=edge,
            fill="tonexty",
            fillcolor=_BAND,
            name="Confidence sequence (upper bound)",
            showlegend=False,
        ),
        go.Scatter(
            x=times, y=middle, mode=_mode(middle), line={"color": ORANGE, "width": 2},
            marker={"color": ORANGE}, name="Difference", showlegend=False,
        ),
    ]  # fmt: skip
    if rows:
        spoken = f"{title}: {middle[-1]:+.1f}, between {low[-1]:+.1f} and {high[-1]:+.1f}."
    else:
        spoken = f"{title}. Too few ended sessions."
    layout = _layout(history)
    layout["yaxis"] |= {"zerolinewidth": 2, "zerolinecolor": GREY}
    if not rows:
        layout["annotations"] = [_note("Too few ended sessions")]
        layout["xaxis"]["visible"] = layout["yaxis"]["visible"] = False
    return Chart(name, title, about, spoken, _draw(traces, layout))


def _quantile_chart(history: Sequence[Point], strategies: Mapping[str, str]) -> Chart:
    times = _times(history)
    traces = []
    for arm in ARMS:
        for key, dash in (("p50", "solid"), ("p90", "8px,3px"), ("p99", "3px,2px")):
            values = [point["arms"][arm][f"ttft_{key}_s"] for point in history]
            line = {"color": COLOURS[arm], "dash": dash, "width": 2}
            traces.append(
                go.Scatter(
                    x=times, y=values, mode=_mode(values), line=line,
                    marker={"color": COLOURS[arm]}, name=f"{strategies[arm]} {key}",
                )
            )  # fmt: skip
    title = "TTFT p50, p90, p99 (s)"
    last = history[-1]["arms"]
    parts = "; ".join(
        f"{strategies[arm]} {last[arm]['ttft_p50_s']:.3g}, {last[arm]['ttft_p90_s']:.3g}, "
        f"{last[arm]['ttft_p99_s']:.3g}"
        for arm in ARMS
        if last[arm]["ttft_p50_s"] is not None
    )
    layout = _layout(history)
    layout["yaxis"] |= {"rangemode": "tozero"}
    layout["height"] = _TALL  # six names, one a line on a phone
    about = "Of all requests since the start, to 10 %."
    return Chart(
        "quantiles", title, about, f"{title}. {parts or 'No data'}.", _draw(traces, layout)
    )


def _arm_chart(
    key: str,
    title: str,
    about: str,
    scale: float,
    history: Sequence[Point],
    strategies: Mapping[str, str],
) -> Chart:
    times = _times(history)
    traces, parts = [], []
    for arm in ARMS:
        values = [point["arms"][arm][key] for point in history]
        scaled = [None if value is None else round(value * scale, 3) for value in values]
        colour = COLOURS[arm]
        line = {"color": colour, "width": 2, "dash": "solid" if arm == "control" else "8px,3px"}
        traces.append(
            go.Scatter(
                x=times, y=scaled, mode=_mode(scaled), line=line, marker={"color": colour},
                name=strategies[arm],
            )
        )  # fmt: skip
        parts.append(f"{strategies[arm]} {'not reported' if scaled[-1] is None else scaled[-1]}")
    layout = _layout(history)
    layout["yaxis"] |= {"rangemode": "tozero"}
    spoken = f"{title}. {'; '.join(parts)}."
    return Chart(f"arm-{key}", title, about, spoken, _draw(traces, layout))


def _mode(values: Sequence[float | None]) -> str:
    """Return markers for a single value, which draws no line."""
    return "lines" if sum(value is not None for value in values) > 1 else "lines+markers"


def _times(points: Sequence[Point]) -> list[str]:
    return [f"{localize(point['at']):%Y-%m-%d %H:%M:%S}" for point in points]


def _note(text: str) -> dict[str, Any]:
    place = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    return {**place, "text": text}


def _draw(traces: list[go.Scatter], layout: dict[str, Any]) -> dict[str, Any]:
    return go.Figure(data=traces, layout=layout).to_plotly_json()


def _layout(history: Sequence[Point]) -> dict[str, Any]:
    zone = get_axis_zone(history[-1]["at"])["name"]
    axis = {"gridcolor": _GRID, "fixedrange": True, "automargin": True}
    return {
        "template": "none",
        "uirevision": "emberline",
        "height": _HEIGHT,
        "margin": {"l": 48, "r": 8, "t": 8, "b": 24},
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "hovermode": "x unified",
        "hoverlabel": {"namelength": -1},
        "font": {"family": "inherit", "size": 12},
        "legend": {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"},
        "xaxis": {
            **axis,
            "type": "date",
            "hoverformat": f"%b %-d, %H:%M:%S {zone}",
            "nticks": 5,
            "tickangle": 0,
        },
        "yaxis": {**axis, "zerolinecolor": _GRID, "nticks": 6, "ticklabelstandoff": 4},
    }
