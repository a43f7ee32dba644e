"""Parse submitted values: durations, times and texts, each error assigned to its field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from console.core.errors import Problem, Refused, expect_object

_DURATION = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?")
_UNITS: Final = (86400, 3600, 60, 1)
DURATION_REMEDY: Final = "Examples: 30m, 2h, 1d, 1h30m."


def parse_mapping(data: Any, known: Iterable[str]) -> Mapping[str, Any]:
    """Return the body as a mapping; raise `Refused` for unknown fields."""
    mapping = expect_object(data)
    names = list(known)
    unknown = [name for name in mapping if name not in names]
    if unknown:
        remedy = f"Known fields: {', '.join(names)}."
        fault = "Unknown field."
        raise Refused(
            *(Problem(str(name), mapping[name], fault, remedy, "unknown") for name in unknown)
        )
    return mapping


def parse_text(data: Mapping[str, Any], name: str, longest: int, *, needed: bool = False) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        raise Refused(Problem(name, value, "Not a string.", "Send a string.", "type"))
    value = value.strip()
    if needed and not value:
        raise Refused(Problem(name, value, "This field is required.", "Enter a value.", "required"))
    if len(value) > longest or not value.replace("\n", " ").isprintable():
        remedy = f"Enter at most {longest} printable characters."
        raise Refused(Problem(name, value[:80], "Invalid text.", remedy, "text"))
    return value


def parse_choice(data: Mapping[str, Any], name: str, known: Iterable[str], default: str) -> str:
    value = data.get(name, default)
    choices = list(known)
    if value not in choices:
        remedy = f"Choose one of {', '.join(choices)}."
        raise Refused(Problem(name, value, "Unknown choice.", remedy, "unknown_choice"))
    return str(value)


def parse_flag(data: Mapping[str, Any], name: str, default: bool) -> bool:
    value = data.get(name, default)
    if not isinstance(value, bool):
        raise Refused(Problem(name, value, "Not a boolean.", "Send true or false.", "type"))
    return value


def parse_seconds(data: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    """Parse a number of seconds or a Prometheus duration."""
    value = data.get(name, default)
    seconds = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str):
        seconds = _spelled(value.strip())
    if seconds is None or not low <= seconds <= high:
        remedy = f"{DURATION_REMEDY} Range: {format_duration(low)} to {format_duration(high)}."
        problem = "Invalid duration."
        raise Refused(Problem(name, value, problem, remedy, "duration"))
    return seconds


def parse_time(data: Mapping[str, Any], name: str) -> datetime | None:
    """Return None if the field is missing. A time without an offset is in the active zone."""
    value = data.get(name)
    if value in (None, ""):
        return None
    try:
        moment = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        remedy = "Example: 2026-11-21T18:00:00Z."
        raise Refused(Problem(name, value, "Invalid time.", remedy, "datetime"))
    return moment if moment.tzinfo else timezone.make_aware(moment)


def format_duration(number: int) -> str:
    """Format seconds: 5400 -> "1h30m"."""
    left, text = number, ""
    for size, unit in zip(_UNITS, "dhms", strict=True):
        if left >= size:
            text += f"{left // size}{unit}"
            left %= size
    return text or "0s"


def _spelled(value: str) -> int | None:
    if value.isascii() and value.isdecimal() and len(value) < 9:
        return int(value)
    match = _DURATION.fullmatch(value)
    if match is None or not value:
        return None
    return sum(int(n or 0) * size for n, size in zip(match.groups(), _UNITS, strict=True))
