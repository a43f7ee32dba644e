"""Format values with units, as text and as Plotly axis formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from console.core.money import format_usd, format_usd_hour
from dashboards.boards.panels.declarations import Unit


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
