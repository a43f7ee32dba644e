"""Series to a Plotly figure, and to the table that says the same in words. Pure.

Promises colours that stand on white and on black (backgrounds are transparent, texts take the
page's colour from panels.css) and a gap where there was no number, never a line across it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboards.panels import (
    BLUE,
    DASHES,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    Line,
    Panel,
    Style,
    Unit,
)
from dashboards.prom import Series, Window

# For names we cannot know; red and grey keep their meaning.
_IN_TURN = (SKY, PURPLE, BLUE, ORANGE, GREEN)
_HATCHES = ("", "/", "x", "-", "|", "+", "\\", ".")
_HEIGHT = 280
_CLEAR = "rgba(0,0,0,0)"
_RULE = "rgba(128,128,128,0.25)"


@dataclass(frozen=True, slots=True)
class Drawn:
    """One series with its name and clothes. `key` is the name in the data."""

    key: str
    style: Style
    values: tuple[float | None, ...]

    @property
    def numbers(self) -> list[float]:
        return [value for value in self.values if value is not None]


def dressed(panel: Panel, found: list[tuple[Line, tuple[Series, ...]]]) -> list[Drawn]:
    """The panel's series in the order they are drawn and listed."""
    named = [(_key(line, series), series.values) for line, answer in found for series in answer]
    known = list(panel.styles)
    named.sort(key=lambda item: (known.index(item[0]) if item[0] in known else len(known), item[0]))
    turn = 0
    drawn = []
    for key, values in named:
        style = panel.styles.get(key)
        if style is None:
            style, turn = _in_turn(key, turn), turn + 1
        drawn.append(Drawn(key, style, values))
    return drawn


def _key(line: Line, series: Series) -> str:
    """With its source where several gave a series of that name."""
    name = line.name or series.label(line.by) or "(no name)"
    source = series.label("metrics_source")
    return f"{name} ({source})" if source else name


def figure(panel: Panel, drawn: list[Drawn], window: Window) -> dict[str, Any] | None:
    """Plotly's data and layout, or None when there is no number to draw."""
    shown = [item for item in drawn if item.numbers]
    if panel.hides_zeros and any(any(item.numbers) for item in shown):
        shown = [item for item in shown if any(item.numbers)]
    if not shown:
        return None
    layout = _layout(panel, len(shown))
    traces = [_trace(panel, item, window) for item in shown]
    made: dict[str, Any] = go.Figure(data=traces, layout=layout).to_plotly_json()
    return made


def table(panel: Panel, drawn: list[Drawn]) -> dict[str, Any]:
    """One row a series; what the chart hides as zero is here."""
    rows = []
    for item in drawn:
        numbers = item.numbers
        picked: tuple[float | None, ...] = (None,) * 4
        if numbers:
            picked = (item.values[-1], sum(numbers) / len(numbers), min(numbers), max(numbers))
        rows.append([item.style.label, *(in_words(panel.unit, value) for value in picked)])
    return {"head": ["", "Now", "Mean", "Lowest", "Highest"], "rows": rows}


def spoken(panel: Panel, drawn: list[Drawn]) -> str:
    """The chart for who cannot see it: the latest value of each line."""
    parts = [
        f"{item.style.label} {in_words(panel.unit, item.values[-1])}"
        for item in drawn
        if item.numbers and (any(item.numbers) or not panel.hides_zeros)
    ]
    return f"{panel.title}. Now: {'; '.join(parts)}." if parts else f"{panel.title}. No data."


def in_words(unit: Unit, value: float | None) -> str:
    if value is None:
        return "–"
    if unit == "share":
        return f"{value * 100:.1f} %"
    if unit == "seconds":
        return f"{value * 1000:.0f} ms" if value < 0.9995 else f"{value:.2f} s"
    return _UNITS[unit](value)


def _plain(value: float) -> str:
    """Whole numbers as such; large ones in thousands and millions."""
    size = abs(value)
    for divisor, sign in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= divisor:
            return f"{value / (1e3 if sign == 'k' else divisor):.1f} {sign}"
    return f"{value:.0f}" if size >= 99.995 or value == int(value) else f"{value:.2f}"


def _bytes(value: float) -> str:
    for power, sign in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(value) >= 1024**power:
            return f"{value / 1024**power:.1f} {sign}"
    return f"{value:.0f} B"


def _usd(value: float) -> str:
    """Cents where there are any to see."""
    return f"{value:.2f} USD" if abs(value) >= 0.0995 or value == 0 else f"{value:.2g} USD"


def _per_s(value: float) -> str:
    if abs(value) >= 1e4:
        return f"{_plain(value)}/s"
    return f"{value:.2f}/s" if abs(value) < 99.995 else f"{value:.0f}/s"


_UNITS: Mapping[Unit, Callable[[float], str]] = {
    "per_s": _per_s,
    "count": _plain,
    "tokens": _plain,
    "tokens_per_s": lambda value: f"{_plain(value)} tokens/s",
    "bytes": _bytes,
    "bytes_per_s": lambda value: f"{_bytes(value)}/s",
    "usd": _usd,
    "usd_hour": lambda value: f"{_usd(value)}/h",
    "celsius": lambda value: f"{value:.0f} °C",
    "watts": lambda value: f"{value:.0f} W",
}


def _in_turn(key: str, turn: int) -> Style:
    colour = _IN_TURN[turn % len(_IN_TURN)]
    # The dash changes with every line, and starts elsewhere in every round of colours.
    dash = DASHES[(turn % len(_IN_TURN) + turn // len(_IN_TURN)) % len(DASHES)]
    return Style(key, colour, dash, _HATCHES[turn % len(_HATCHES)])


def _trace(panel: Panel, item: Drawn, window: Window) -> go.Scatter:
    stacked = panel.kind == "stacked"
    style = item.style
    trace = go.Scatter(
        name=style.label,
        mode="lines",
        x0=window.start * 1000,  # epoch milliseconds, which Plotly shows in UTC
        dx=window.step * 1000,
        y=[None if value is None else float(f"{value:.6g}") for value in item.values],
        line={"color": style.colour, "dash": style.dash, "width": 1.5 if stacked else 2},
        connectgaps=False,
    )
    lonely = _lonely(item.values)
    if not stacked and any(lonely):
        # A number between two gaps makes no line: without a dot nobody would see it.
        sizes = [5 if alone else 0 for alone in lonely]
        trace.update(mode="lines+markers", marker={"size": sizes, "color": style.colour})
    if stacked:
        pattern = {"shape": style.hatch, "size": 7, "solidity": 0.25, "fillmode": "overlay"}
        trace.update(stackgroup="all", fillpattern=pattern if style.hatch else None)
    return trace


def _lonely(values: tuple[float | None, ...]) -> list[bool]:
    padded = (None, *values, None)
    return [
        middle is not None and before is None and after is None
        for before, middle, after in zip(padded, padded[1:], padded[2:], strict=False)
    ]


_AXES: Mapping[Unit, dict[str, str]] = {
    "per_s": {"tickformat": "~s", "hoverformat": ".3~g", "ticksuffix": "/s"},
    "count": {"tickformat": "~s", "hoverformat": ".3~g"},
    "tokens": {"tickformat": "~s", "hoverformat": ".3~s"},
    "tokens_per_s": {"tickformat": "~s", "hoverformat": ".3~s", "ticksuffix": "/s"},
    "bytes": {"tickformat": "~s", "hoverformat": ".3~s", "ticksuffix": "B"},
    "bytes_per_s": {"tickformat": "~s", "hoverformat": ".3~s", "ticksuffix": "B/s"},
    "usd": {"tickformat": "~g", "hoverformat": ".3~g", "tickprefix": "$"},
    "usd_hour": {"tickformat": "~g", "hoverformat": ".3~g", "tickprefix": "$", "ticksuffix": "/h"},
    "celsius": {"tickformat": "~g", "hoverformat": ".0f", "ticksuffix": " °C"},
    "watts": {"tickformat": "~s", "hoverformat": ".3~s", "ticksuffix": "W"},
}


def _layout(panel: Panel, lines: int) -> dict[str, Any]:
    value_axis: dict[str, Any] = {
        "rangemode": "tozero",
        "gridcolor": _RULE,
        "zerolinecolor": _RULE,
        "fixedrange": True,
        "automargin": True,
        "nticks": 6,
    }
    if panel.unit == "share":
        value_axis |= {"tickformat": ".0%", "hoverformat": ".1%"}
        value_axis |= {"range": [0, 1.02]} if panel.of_whole else {}
    elif panel.unit == "seconds":
        value_axis |= {"tickformat": "~s", "hoverformat": ".3s", "ticksuffix": "s"}
    else:
        value_axis |= _AXES[panel.unit]
    return {
        "template": "none",
        "uirevision": "emberline",  # constant: zoom and hidden lines outlive a poll
        "height": _HEIGHT + 10 * max(0, lines - 4),  # the legend grows, the chart stays
        "margin": {"l": 48, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "hovermode": "x unified",
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
            # No range: every line has all points of the window, empty ones too, and a range that
            # moves with each poll would undo the reader's zoom.
            "type": "date",
            "gridcolor": _RULE,
            "tickformat": "%H:%M",
            "hoverformat": "%b %-d, %H:%M:%S UTC",
            "tickangle": 0,
            "automargin": True,
            "nticks": 6,
        },
        "yaxis": value_axis,
    }
