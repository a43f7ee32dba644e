"""Numbers with their units: in words for people, and as Plotly writes them on an axis. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dashboards.panels import Unit


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


_LARGE = 1000
_AXES: Mapping[Unit, dict[str, Any]] = {
    "share": {"tickformat": ".0%", "hoverformat": ".1%"},
    "seconds": {"tickformat": "~s", "hoverformat": ".3s", "ticksuffix": "s"},
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


def axis(unit: Unit, highest: float) -> dict[str, Any]:
    """The value axis's formats of ticks and of what a pointer shows, up to the highest value."""
    formats = _AXES[unit]
    if unit != "seconds" and highest < _LARGE and formats["tickformat"] == "~s":
        # Half a request a second is 0.5, not 500m.
        return formats | {"tickformat": "~g"}
    return formats
