"""User-settable number of a rule: bounds, PromQL text and display text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal

# "edge": a histogram bucket bound, which Prometheus versions write as 1 or 1.0.
Unit = Literal["", "seconds", "share", "percent", "a second", "celsius", "window", "edge"]

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9})\s*(s|m|min|h|d|w)?")


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
    """Format as a Prometheus duration: 300 -> "5m"."""
    for unit in ("w", "d", "h", "m"):
        size = _UNITS_S[unit]
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def describe_duration(seconds: int) -> str:
    """Format for display: 300 -> "5 min"."""
    text = format_duration(seconds)
    return f"{text[:-1]} {'min' if text[-1] == 'm' else text[-1]}"


def format_value(unit: str, value: float) -> str:
    """Format a measured value with three digits."""
    if unit == "share":
        return f"{value * 100:.3g} %"
    if unit == "seconds":
        return f"{value:.3g} s" if abs(value) >= 1 else f"{value * 1000:.3g} ms"
    words = {"a second": "/s", "celsius": " °C", "percent": " %"}
    return f"{value:.3g}{words.get(unit, '')}"


def parse_duration(text: str) -> int | None:
    """Parse "5m", "5 min", "90" or "90s"; return None for other texts."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        return None
    return int(match[1]) * _UNITS_S[(match[2] or "s")[0]]
