"""Series with names and styles, the input of every chart kind, and the text of their values.

Equal names get equal styles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from console.core.money import format_usd, format_usd_hour
from dashboards.boards.panels.declarations import Panel, PanelLine, Style, Unit
from dashboards.boards.panels.styles import BLUE, DASHES, GREEN, ORANGE, PURPLE, SKY
from dashboards.prometheus.http.client import Series
from routing.analysis.label_names import get_name

MAX_LINES = 40
Values = tuple[float | None, ...]
Named = list[tuple[str, Values]]

# For names without a declared style; red and grey keep their meaning.
CYCLE = (SKY, PURPLE, BLUE, ORANGE, GREEN)
_HATCHES = ("", "/", "x", "-", "|", "+", "\\", ".")


@dataclass(frozen=True, slots=True)
class StyledSeries:
    """A series with name and style. `key` is the name in the data. `total`: the value over the
    whole range, if the series is a counter and a total was requested.
    """

    key: str
    style: Style
    values: Values
    total: float | None = None

    @property
    def numbers(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def mean(self) -> float:
        numbers = self.numbers
        return sum(numbers) / len(numbers) if numbers else -math.inf


def style_series(
    panel: Panel, found: list[tuple[PanelLine, tuple[Series, ...]]]
) -> list[StyledSeries]:
    rows = [(_key(line, series), line, series) for line, answer in found for series in answer]
    if panel.kind == "heatmap":
        return _split_buckets([(key, series.values) for key, _, series in rows])
    legend_keys = list(panel.legend)
    rows.sort(
        key=lambda row: (
            legend_keys.index(row[0]) if row[0] in legend_keys else len(legend_keys),
            row[0],
        )
    )
    turn = 0
    drawn = []
    for key, line, series in rows:
        style = panel.legend.get(key)
        if style is None:
            style, turn = _assign_styles(_make_label(line, series), turn), turn + 1
        drawn.append(StyledSeries(key, style, series.values))
    return _limit_lines(drawn)


def add_totals(
    drawn: Sequence[StyledSeries], found: Sequence[tuple[PanelLine, tuple[Series, ...]]]
) -> list[StyledSeries]:
    totals = {_key(line, series): series.latest for line, answer in found for series in answer}
    return [replace(item, total=totals.get(item.key)) for item in drawn]


def _key(line: PanelLine, series: Series) -> str:
    """Return the name in the data."""
    return _append_source(line.name or series.label(line.by) or "(no name)", series)


def _make_label(line: PanelLine, series: Series) -> str:
    """Return the display name."""
    value = series.label(line.by)
    named = get_name(line.by, value) if value else line.name or "(no name)"
    return _append_source(named, series)


def _append_source(name: str, series: Series) -> str:
    """Append the source if several sources have a series of that name."""
    source = series.label("metrics_source")
    return f"{name} ({source})" if source else name


def _limit_lines(drawn: list[StyledSeries]) -> list[StyledSeries]:
    """Keep the largest series, and add one without values that states how many were omitted."""
    left = len(drawn) - MAX_LINES
    if left <= 0:
        return drawn
    kept_ids = {id(item) for item in sorted(drawn, key=lambda item: -item.mean)[:MAX_LINES]}
    more = Style(f"{left} smaller series not shown", SKY)
    return [*(item for item in drawn if id(item) in kept_ids), StyledSeries("", more, ())]


def _assign_styles(label: str, turn: int) -> Style:
    colour = CYCLE[turn % len(CYCLE)]
    # The dash changes with each line, and its offset with each round of colours.
    dash = DASHES[(turn % len(CYCLE) + turn // len(CYCLE)) % len(DASHES)]
    return Style(label, colour, dash, _HATCHES[turn % len(_HATCHES)])


def _split_buckets(named: Named) -> list[StyledSeries]:
    """Convert cumulative histogram buckets to separate ones, lowest first."""
    edges = sorted((edge, values) for key, values in named if (edge := _edge(key)) is not None)
    drawn = []
    for place, (edge, values) in enumerate(edges):
        below = edges[place - 1] if place else None
        own = values if below is None else _subtract(values, below[1])
        label = _between(below[0] if below else None, edge)
        drawn.append(StyledSeries(label, Style(label, SKY), own))
    return drawn


def _edge(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _subtract(values: Values, below: Values) -> Values:
    """Subtract, with a minimum of 0: the buckets may come from different scrapes."""
    return tuple(
        None if upper is None or lower is None else max(0.0, upper - lower)
        for upper, lower in zip(values, below, strict=True)
    )


def _between(below: float | None, edge: float) -> str:
    if math.isinf(edge):
        return f"over {_whole(below or 0)}"
    return f"up to {_whole(edge)}" if below is None else f"{_whole(below)} to {_whole(edge)}"


def _whole(edge: float) -> str:
    return f"{edge:,.0f}" if edge == int(edge) else f"{edge:g}"


def keep_with_values(drawn: Sequence[StyledSeries]) -> list[StyledSeries]:
    return [item for item in drawn if item.numbers]


def rounded(values: Values) -> list[float | None]:
    return [None if value is None else float(f"{value:.6g}") for value in values]


def format_value(unit: Unit, value: float | None) -> str:
    return "–" if value is None else _UNITS[unit](value)


def _format_share(value: float) -> str:
    percent = value * 100
    return f"{_format_small(percent)} %" if 0 < percent < 0.05 else f"{percent:.1f} %"


def _format_small(value: float) -> str:
    return "under 0.001" if value < 0.001 else f"{value:.1g}"


def _format_seconds(value: float) -> str:
    if value == 0:
        return "0 ms"
    if abs(value) < 0.9995e-3:
        return f"{value * 1e6:.0f} µs"
    if abs(value) < 0.9995:
        return f"{value * 1000:.0f} ms" if abs(value) >= 0.00995 else f"{value * 1000:.1f} ms"
    for length, sign in _LONG:
        if abs(value) >= 2 * length:
            return f"{value / length:.1f} {sign}"
    return f"{value:.2f} s"


def _format_plain(value: float) -> str:
    size = abs(value)
    for divisor, sign in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= divisor:
            return f"{value / (1e3 if sign == 'k' else divisor):.1f} {sign}"
    return f"{value:.0f}" if size >= 99.995 or value == int(value) else f"{value:.2f}"


def _format_bytes_per_s(value: float) -> str:
    """Use decimal prefixes, as the axis and as the specifications of links and disks do."""
    for divisor, sign in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= divisor:
            return f"{value / divisor:.1f} {sign}/s"
    return f"{value:.0f} B/s"


def _format_bytes(value: float) -> str:
    for power, sign in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(value) >= 1024**power:
            return f"{value / 1024**power:.1f} {sign}"
    return f"{value:.0f} B"


def _format_per_s(value: float) -> str:
    if abs(value) >= 1e4:
        return f"{_format_plain(value)}/s"
    if 0 < value < 0.005:
        return f"{_format_small(value)}/s"
    return f"{value:.2f}/s" if abs(value) < 99.995 else f"{value:.0f}/s"


_LONG = ((86400, "days"), (3600, "h"), (60, "min"))
_UNITS: Mapping[Unit, Callable[[float], str]] = {
    "share": _format_share,
    "seconds": _format_seconds,
    "per_s": _format_per_s,
    "count": _format_plain,
    "tokens": _format_plain,
    "tokens_per_s": lambda value: f"{_format_plain(value)} tokens/s",
    "bytes": _format_bytes,
    "bytes_per_s": _format_bytes_per_s,
    "usd": format_usd,
    "usd_hour": format_usd_hour,
    "celsius": lambda value: f"{value:.0f} °C",
    "watts": lambda value: f"{value:.0f} W",
}


_LARGE = 1000
_SMALL_USD = 0.0995  # below, cents are too coarse
_AXES: Mapping[Unit, dict[str, Any]] = {
    "share": {"tickformat": ".0%", "hoverformat": ".1%"},
    "seconds": {"tickformat": "~s", "hoverformat": ".3s", "ticksuffix": "s"},
    "per_s": {"tickformat": "~s", "hoverformat": ".3~g", "ticksuffix": "/s"},
    "count": {"tickformat": "~s", "hoverformat": ".3~g"},
    "tokens": {"tickformat": "~s", "hoverformat": ".3~s"},
    "tokens_per_s": {"tickformat": "~s", "hoverformat": ".3~s", "ticksuffix": "/s"},
    "bytes": {"tickformat": "~s", "hoverformat": ".3~s", "ticksuffix": "B"},
    "bytes_per_s": {"tickformat": "~s", "hoverformat": ".3~s", "ticksuffix": "B/s"},
    "usd": {"tickformat": "$,.2f", "hoverformat": "$,.2f"},
    "usd_hour": {"tickformat": "$,.2f", "hoverformat": "$,.2f", "ticksuffix": "/h"},
    "celsius": {"tickformat": "~g", "hoverformat": ".0f", "ticksuffix": " °C"},
    "watts": {"tickformat": "~s", "hoverformat": ".3~s", "ticksuffix": "W"},
}


_STEPS: Mapping[Unit, tuple[int, ...]] = {
    "seconds": (30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800),
    "bytes": tuple(
        step * 1024**power
        for power in (1, 2, 3, 4)
        for step in (1, 2, 5, 10, 20, 50, 100, 200, 500)
    ),
}
_TICKS = 6


def axis_format(unit: Unit, highest: float) -> dict[str, Any]:
    formats = _AXES[unit]
    if unit in _STEPS and highest > 2 * _STEPS[unit][1]:
        # Plotly would format 3.6 ks, and a GiB as 1.07 GB.
        return formats | _ticks(unit, highest)
    if unit in ("usd", "usd_hour") and highest < _SMALL_USD:
        return formats | {"tickformat": "$~r", "hoverformat": "$.2~r"}
    if unit != "seconds" and highest < _LARGE and formats["tickformat"] == "~s":
        # Half a request per second is 0.5, not 500m.
        return formats | {"tickformat": "~g"}
    return formats


def _ticks(unit: Unit, highest: float) -> dict[str, Any]:
    steps = _STEPS[unit]
    step = next((step for step in steps if highest / step < _TICKS), steps[-1])
    if highest / step >= _TICKS:
        step *= math.ceil(highest / step / _TICKS)
    values = [step * count for count in range(math.floor(highest / step) + 1)]
    words = [format_value(unit, value).replace(".0 ", " ").replace(".00 ", " ") for value in values]
    return {"tickvals": values, "ticktext": ["0", *words[1:]]}
