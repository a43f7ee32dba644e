"""User-settable number of a rule: bounds, PromQL text and display text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal

# "edge": a histogram bucket bound, which Prometheus versions write as 1 or 1.0.
Unit = Literal["", "seconds", "share", "percent", "a second", "celsius", "window", "edge"]

_UNITS_S: Final = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(
    r"(?:(\d{1,4})w)?(?:(\d{1,5})d)?(?:(\d{1,6})h)?(?:(\d{1,7})m(?:in)?)?(?:(\d{1,9})s?)?"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a built-in rule. `choices`: the allowed values; if empty, any from `low` to
    `high`.
    """

    name: str
    label: str
    default: float
    low: float
    high: float
    unit: Unit = ""
    choices: tuple[float, ...] = ()

    def written(self, value: float) -> str:
        """Format for PromQL."""
        if self.unit == "window":
            return format_duration(int(value))
        if self.unit == "edge":
            return f"{value:g}|{float(value)!r}" if value == int(value) else f"{value:g}"
        return f"{value:g}"

    def shown(self, value: float) -> str:
        """Format for display."""
        if self.unit in ("seconds", "edge"):
            return f"{value * 1000:g} ms" if 0 < value < 0.1 else f"{value:g} s"
        if self.unit == "share":
            return f"{value * 100:g} %"
        words = {"percent": " %", "a second": "/s", "celsius": " °C", "tokens": " tokens"}
        return (
            describe_duration(int(value))
            if self.unit == "window"
            else f"{value:g}{words.get(self.unit, '')}"
        )

    def fault(self, value: object) -> str:
        """Return the problem with the value, or ""."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "Enter a number."
        if not math.isfinite(value):
            return "Enter a finite number."
        if self.choices and value not in self.choices:
            return "Unknown choice."
        if not self.low <= value <= self.high:
            return "Value out of range."
        if self.unit == "window" and value != int(value):
            return "Enter a whole number of seconds."
        return ""

    @property
    def bounds(self) -> str:
        if self.choices:
            return f"One of {', '.join(self.shown(choice) for choice in self.choices)}."
        return f"Range: {self.shown(self.low)} to {self.shown(self.high)}."


def format_duration(seconds: int) -> str:
    """Format as Prometheus does: 300 -> "5m", 5400 -> "1h30m"; weeks only if nothing is left."""
    text = ""
    for unit, size in _UNITS_S.items():
        if seconds >= size and (unit != "w" or seconds % size == 0):
            text += f"{seconds // size}{unit}"
            seconds %= size
    return text or "0s"


def describe_duration(seconds: int) -> str:
    """Format for display in the largest unit without a remainder: 300 -> "5 min"."""
    unit, size = next(
        ((unit, size) for unit, size in _UNITS_S.items() if seconds and seconds % size == 0),
        ("s", 1),
    )
    return f"{seconds // size} {'min' if unit == 'm' else unit}"


def format_value(unit: str, value: float) -> str:
    """Format a measured value with three digits."""
    if unit == "share":
        return f"{value * 100:.3g} %"
    if unit == "seconds":
        return f"{value:.3g} s" if abs(value) >= 1 else f"{value * 1000:.3g} ms"
    words = {"a second": "/s", "celsius": " °C", "percent": " %"}
    return f"{value:.3g}{words.get(unit, '')}"


def parse_duration(text: str) -> int | None:
    """Parse "5m", "5 min", "1h30m" or seconds without a unit; return None for other texts."""
    written = "".join(text.lower().split())
    match = _DURATION.fullmatch(written)
    if match is None or not written:
        return None
    return sum(
        int(n or 0) * size for n, size in zip(match.groups(), _UNITS_S.values(), strict=True)
    )
