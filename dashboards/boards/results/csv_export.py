"""Board values as CSV: unformatted, without units, no cell readable as a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TypeVar

from dashboards.boards.results.board import BoardResult, PanelResult

T = TypeVar("T")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def escape_formula(value: T) -> T | str:
    """Mark text that a spreadsheet would interpret as a formula; numbers stay."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def format_csv(found: BoardResult) -> str:
    """One panel: a column per line. Several panels: a row per value with the panel's name."""
    sheet = io.StringIO()
    writer = csv.writer(sheet)
    writer.writerows(_make_wide_rows(found) if len(found.panels) == 1 else _make_long_rows(found))
    return sheet.getvalue()


def make_filename(found: BoardResult, board: str, endpoint: str) -> str:
    only = found.panels[0].panel.id if len(found.panels) == 1 else ""
    end = datetime.fromtimestamp(found.window.end, UTC)
    parts = (endpoint or "fleet", board, only, found.chosen.key, f"{end:%Y%m%dT%H%MZ}")
    return "-".join(part for part in parts if part) + ".csv"


def _make_wide_rows(found: BoardResult) -> Iterator[list[str]]:
    panel = found.panels[0]
    columns = _columns(panel)
    yield ["time", *(escape_formula(f"{label} ({panel.panel.unit})") for label, _ in columns)]
    for place, moment in enumerate(_moments(found)):
        yield [moment, *(_number(values[place]) for _, values in columns)]


def _make_long_rows(found: BoardResult) -> Iterator[list[str]]:
    yield ["panel", "line", "unit", "time", "value"]
    moments = list(_moments(found))
    for panel in found.panels:
        for label, values in _columns(panel):
            head = [escape_formula(panel.panel.id), escape_formula(label), panel.panel.unit]
            for moment, value in zip(moments, values, strict=True):
                if value is not None:
                    yield [*head, moment, _number(value)]


def _columns(shown: PanelResult) -> list[tuple[str, tuple[float | None, ...]]]:
    now = [(item.style.label, item.values) for item in shown.drawn]
    before = [(f"{item.style.label} (previous period)", item.values) for item in shown.before]
    return now + before


def _moments(found: BoardResult) -> Iterator[str]:
    window = found.window
    for place in range(window.points):
        moment = datetime.fromtimestamp(window.start + place * window.step, UTC)
        yield f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)
