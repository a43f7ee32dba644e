"""Output formats: aligned tables, JSON, YAML, and names for xargs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

TABLE, JSON, YAML, NAME = "table", "json", "yaml", "name"


def format_json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, default=str)


def format_yaml(data: Any) -> str:
    plain = json.loads(format_json(data))
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)).rstrip()


def format_data(data: Any, form: str) -> str:
    return format_json(data) if form == JSON else format_yaml(data)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(head), *(tuple(_sanitize(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _sanitize(cell: str) -> str:
    """Make a value safe for a table and a terminal."""
    return strip_control_characters(" ".join(cell.split()))


def strip_control_characters(text: str) -> str:
    """Remove control characters except line ends and tabs."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "�" for character in text
    )


def format_time(moment: str | None) -> str:
    """Format an RFC 3339 time in UTC as "2026-11-21 08:00:00"."""
    return (moment or "")[:19].replace("T", " ")


def format_epoch(epoch: float) -> str:
    """Format seconds since 1970 like `format_time`."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_age(moment: str) -> str:
    """Format the age of an RFC 3339 time: "12 s", "5 min", "3 h" or "4 d"; at least 0 s."""
    since = datetime.now(UTC) - datetime.fromisoformat(moment)
    seconds = max(0, int(since.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def truncate(value: Any, most: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cell(value: Any) -> str:
    """Format a table cell: unquoted text, mappings as "prefix 96, l2 32", "" for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell(item)}" for key, item in value.items())
    return truncate(value)


def format_figure(value: float) -> str:
    """Format four significant digits without an exponent: "0.1234", "12.34", "360,500"."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_seconds(value: float | None) -> str:
    """Format three significant digits: "303 ms", "1.23 s"."""
    if value is None:
        return "-"
    return f"{value:.3g} s" if value >= 0.9995 else f"{1000 * value:.3g} ms"


def count(number: int, noun: str) -> str:
    """Format a number with its noun: "1 worker", "2 workers"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(count: float | None) -> str:
    """Format bytes as "1.5 GiB"."""
    if count is None:
        return "?"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
