"""Series as Plotly figures: data in, plain dicts out. Pure; theme is added in the browser.

Promises that a tier has the same colour on every page, and that colour never stands alone: lines
differ in dash, areas in pattern, and the table under the chart says the same. Colours are
Okabe and Ito's, told apart with every kind of colour vision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.panels import Panel
from dashboards.prom import Series, Window

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, RED, GREY = "#56B4E9", "#D55E00", "#999999"


@dataclass(frozen=True, slots=True)
class Look:
    colour: str
    dash: str = "solid"
    pattern: str = ""


ROLES = {
    "computed": Look(GREY, "solid", ""),
    "device": Look(BLUE, "dash", "/"),
    "l1": Look(GREEN, "dot", "."),
    "l2": Look(ORANGE, "dashdot", "x"),
    "p50": Look(BLUE, "solid"),
    "p90": Look(PINK, "dash"),
    "p99": Look(RED, "dot"),
    "2xx": Look(BLUE, "solid"),
    "4xx": Look(ORANGE, "dash"),
    "5xx": Look(RED, "dot"),
    "none": Look(GREY, "solid"),
    "partial": Look(SKY, "dash"),
    "full": Look(GREEN, "dot"),
    "prefix_hit": Look(GREEN, "solid"),
    "kv_hit": Look(GREEN, "dash"),
    "session_sticky": Look(BLUE, "dash"),
    "round_robin": Look(SKY, "dot"),
    "fallback_no_match": Look(GREY, "solid"),
    "fallback_least_loaded": Look(ORANGE, "dash"),
    "fallback_unhealthy": Look(RED, "dot"),
    "retry": Look(RED, "dash"),
    "pinned": Look(PINK, "dashdot"),
}
_OTHERS = tuple(
    Look(colour, dash, pattern)
    for dash, pattern in (("solid", ""), ("dash", "/"), ("dot", "."), ("dashdot", "x"))
    for colour in (BLUE, ORANGE, GREEN, PINK, SKY, RED)
)


@dataclass(frozen=True, slots=True)
class Unit:
    """`title` stands at the axis, `format` is d3's for ticks and hover, `decimals` the table's."""

    title: str
    format: str
    decimals: int
    factor: float = 1.0
    suffix: str = ""


UNITS = {
    "seconds": Unit("seconds", ".3~f", 3),
    "per_second": Unit("a second", ".3~f", 3),
    "tokens_per_second": Unit("tokens a second", ".4~s", 1),
    "share": Unit("share", ".0%", 0, factor=100, suffix=" %"),
}


@dataclass(frozen=True, slots=True)
class Named:
    """A line as drawn: on every step of the window, None where there is no sample."""

    name: str
    role: str
    values: tuple[float | None, ...]

    @property
    def last(self) -> float | None:
        return next((value for value in reversed(self.values) if value is not None), None)


def on_grid(series: Series, window: Window) -> tuple[float | None, ...]:
    """The series' values on the window's steps: a gap stays a gap, and areas can be stacked."""
    known = {
        round((moment - window.start) / window.step): value
        for moment, value in zip(series.times, series.values, strict=True)
    }
    steps = (window.end - window.start) // window.step
    return tuple(known.get(step) for step in range(steps + 1))


def times(window: Window) -> list[int]:
    """The window's steps in epoch milliseconds, which Plotly takes for a date axis."""
    return [moment * 1000 for moment in range(window.start, window.end + 1, window.step)]


def look(role: str, index: int) -> Look:
    """By role; without one, by place among the panel's lines."""
    return ROLES.get(role) or _OTHERS[index % len(_OTHERS)]


def figure(panel: Panel, lines: Sequence[Named], window: Window) -> dict[str, Any]:
    """{"data", "layout"} for Plotly.react. Built with plotly, which refuses what it cannot draw."""
    import plotly.graph_objects as go

    unit = UNITS[panel.unit]
    moments = times(window)
    traces = [
        go.Scatter(**_trace(panel, line, look(line.role, index), moments, unit))
        for index, line in enumerate(lines)
    ]
    drawn: dict[str, Any] = go.Figure(traces, _layout(panel, unit, window)).to_plotly_json()
    return drawn


def _trace(
    panel: Panel, line: Named, look_: Look, moments: list[int], unit: Unit
) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "x": moments,
        "y": list(line.values),
        "name": line.name,
        "mode": "lines",
        "line": {"color": look_.colour, "dash": look_.dash, "width": 2},
        "hovertemplate": f"%{{y:{unit.format}}} {line.name}<extra></extra>",
    }
    if panel.kind == "stack":
        trace |= {
            "stackgroup": "one",
            "line": {"color": look_.colour, "width": 1},
            "fillpattern": {"shape": look_.pattern, "size": 6, "solidity": 0.35},
        }
    else:
        # A point between two gaps is no line: without its marker it would not be seen.
        trace |= {"mode": "lines+markers", "marker": {"size": 4, "color": look_.colour}}
    return trace


def _layout(panel: Panel, unit: Unit, window: Window) -> dict[str, Any]:
    return {
        "template": {},
        "height": 260,
        "margin": {"l": 52, "r": 12, "t": 8, "b": 36},
        "hovermode": "x unified",
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.18, "x": 0},
        # Constant, so that zoom and hidden lines survive a refresh.
        "uirevision": panel.id,
        "xaxis": {
            "type": "date",
            "range": [window.start * 1000, window.end * 1000],
            "showgrid": False,
        },
        "yaxis": {
            "rangemode": "tozero",
            "tickformat": unit.format,
            "title": {"text": unit.title, "standoff": 6},
            "automargin": True,
            **({"range": [0, 1]} if panel.unit == "share" else {}),
        },
    }


def shown(value: float | None, unit_name: str) -> str:
    """A value as the table says it."""
    if value is None:
        return "–"
    unit = UNITS[unit_name]
    return f"{value * unit.factor:.{unit.decimals}f}{unit.suffix}"
