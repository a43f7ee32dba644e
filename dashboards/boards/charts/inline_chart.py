"""Server-rendered SVG charts of benchmark runs. Sizes are in view box units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routing.analysis.label_names import get_name

WIDTH, HEIGHT = 560, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 8, 10, 26
MIN_POINTS = 3
_INNER_W, _INNER_H = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """Line of an inline chart. `style` is a class of benchmarks.css; `shapes` are the points of
    polylines or polygons.
    """

    label: str
    style: str
    shapes: tuple[str, ...]
    latest: str


@dataclass(frozen=True, slots=True)
class ChartMark:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    id: str
    title: str
    lines: tuple[ChartLine, ...]
    across: tuple[ChartMark, ...]
    up: tuple[ChartMark, ...]
    filled: bool = False

    @property
    def spoken(self) -> str:
        text = "; ".join(f"{line.label} {line.latest}" for line in self.lines)
        return f"{self.title}. Latest: {text}." if text else f"{self.title}. No data yet."


def make_run_charts(series: Mapping[str, Any]) -> list[Chart]:
    if len(series.get("sent", ())) < MIN_POINTS:
        return []
    width = float(series["width_s"])
    rates = [("Sent", "sent"), ("Completed", "done"), ("Failed", "failed")]
    tokens = [("Prompt", "prompt"), ("Cached", "cached"), ("Output", "completion")]
    ttft = [("p50", "ttft_p50"), ("p90", "ttft_p90")]
    return [
        _lines("requests", "Requests/s", rates, series, width, _format_plain),
        _lines("ttft", "TTFT", ttft, series, width, _format_time),
        _lines("tpot", "Time per output token", [("p50", "tpot_p50")], series, width, _format_time),
        _lines("tokens", "Tokens/s", tokens, series, width, _format_plain),
        _tiers(series.get("tiers", {}), len(series["sent"]), width),
    ]


def make_ttft_chart(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Chart | None:
    highest = max((points[-1][0] for points in curves.values() if points), default=0.0)
    if not highest:
        return None
    top = _round_up(highest)
    lines = tuple(
        ChartLine(
            label,
            style,
            (_points((x / top, y) for x, y in points),),
            _format_time(next((x for x, y in points if y >= 0.5), 0.0)),
        )
        for (label, points), style in zip(curves.items(), ("a", "b"), strict=False)
        if points
    )
    across = tuple(
        ChartMark(_LEFT + _INNER_W * part / 4, _format_time(top * part / 4)) for part in range(5)
    )
    up = tuple(ChartMark(_y(part / 4), f"{25 * part} %") for part in range(5))
    return Chart("curves", "TTFT distribution (share of requests)", lines, across, up)


def _lines(
    name: str,
    title: str,
    wanted: Sequence[tuple[str, str]],
    series: Mapping[str, Any],
    width: float,
    format_value: Any,
) -> Chart:
    values: list[tuple[str, str, Values]] = [(lb, key, series.get(key, ())) for lb, key in wanted]
    highest = max((v for _, _, points in values for v in points if v is not None), default=0.0)
    top, count = _round_up(highest), len(series["sent"])
    lines = tuple(
        ChartLine(
            label,
            key.replace("_", "-"),
            _make_polylines(points, top, count),
            format_value(_latest(points)),
        )
        for label, key, points in values
        if any(value is not None for value in points)
    )
    return Chart(name, title, lines, _x_ticks(count, width), _y_ticks(top, format_value))


def make_line_chart(
    name: str,
    title: str,
    values: Sequence[tuple[str, str, Values]],
    across: Sequence[str],
    format_value: Any,
) -> Chart:
    """Chart lines of equal length, given as label, class and values; `across`: evenly spaced
    labels.
    """
    highest = max((v for _, _, points in values for v in points if v is not None), default=0.0)
    top, count = _round_up(highest), max((len(points) for _, _, points in values), default=0)
    lines = tuple(
        ChartLine(label, style, _make_polylines(points, top, count), format_value(_last(points)))
        for label, style, points in values
        if any(value is not None for value in points)
    )
    last = max(1, len(across) - 1)
    marks = tuple(ChartMark(_LEFT + _INNER_W * n / last, text) for n, text in enumerate(across))
    return Chart(name, title, lines, marks, _y_ticks(top, format_value))


def _last(values: Values) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


_TIERS = tuple((key, get_name("tier", key)) for key in ("device", "l1", "l2", "computed"))


def _tiers(tiers: Mapping[str, Values], count: int, width: float) -> Chart:
    present = [(key, label) for key, label in _TIERS if key in tiers]
    padded = {
        key: [*(v or 0.0 for v in tiers[key]), *([0.0] * count)][:count] for key, _ in present
    }
    below = [0.0] * count
    edges = []
    for key, label in present:
        above = [low + more for low, more in zip(below, padded[key], strict=True)]
        edges.append((key, label, below, above))
        below = above
    top = _round_up(max(below, default=0.0))
    lines = tuple(
        ChartLine(
            label,
            f"tier-{key}",
            (_area(low, high, top, count),),
            _format_plain(_last_complete(padded[key])),
        )
        for key, label, low, high in edges
    )
    title = "Prompt tokens/s by tier (workers)"
    across = _x_ticks(count, width)
    return Chart("tiers", title, lines, across, _y_ticks(top, _format_plain), filled=True)


def _last_complete(values: Sequence[float]) -> float:
    """Return the latest complete value; the last point is still incomplete."""
    return values[-2] if len(values) > 1 else values[-1] if values else 0.0


def _latest(values: Values) -> float | None:
    values_present = [value for value in values if value is not None]
    return _last_complete(values_present) if values_present else None


def _make_polylines(values: Values, top: float, count: int) -> tuple[str, ...]:
    """Return a polyline for each run without a gap; a single point becomes a short dash."""
    segments: list[list[tuple[float, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            segments.append([])
        else:
            segments[-1].append((_share(index, count), value / top))
    return tuple(
        _points(segment if len(segment) > 1 else _dash(segment[0]))
        for segment in segments
        if segment
    )


def _dash(point: tuple[float, float]) -> list[tuple[float, float]]:
    x, y = point
    return [(max(0.0, x - 0.004), y), (min(1.0, x + 0.004), y)]


def _area(low: Sequence[float], high: Sequence[float], top: float, count: int) -> str:
    there = [(_share(index, count), value / top) for index, value in enumerate(high)]
    back = [(_share(index, count), value / top) for index, value in enumerate(low)]
    return _points([*there, *reversed(back)])


def _share(index: int, count: int) -> float:
    return index / max(1, count - 1)


def _points(shares: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_LEFT + _INNER_W * x:.1f},{_y(y):.1f}" for x, y in shares)


def _y(share: float) -> float:
    return _TOP + _INNER_H * (1 - share)


def _x_ticks(count: int, width: float) -> tuple[ChartMark, ...]:
    seconds = max(1.0, (count - 1) * width)
    return tuple(
        ChartMark(_LEFT + _INNER_W * part / 4, f"{seconds * part / 4:.0f} s") for part in range(5)
    )


def _y_ticks(top: float, format_value: Any) -> tuple[ChartMark, ...]:
    return tuple(ChartMark(_y(part / 4), format_value(top * part / 4)) for part in range(5))


def _round_up(highest: float) -> float:
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= highest * 0.9999)


def _format_plain(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"


def _format_time(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1000:.3g} ms"
