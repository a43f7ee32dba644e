"""Columns of the endpoint list, with a registry for other apps.

Slow columns are filled by a second request; a failed column gives the reason in each cell.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endpoints.models import Endpoint

log = logging.getLogger(__name__)
KEY = "endpoints.columns"


@dataclass(frozen=True, slots=True)
class Column:
    """Column of the endpoint list. `sort`: sort key in the URL, "" for none. `number`:
    right-aligned.
    """

    key: str
    label: str
    default: bool = True
    sort: str = ""
    number: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of the endpoint list. `why`: reason for a missing text."""

    text: str = ""
    why: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class FilledColumns:
    """A registered column; `fill` returns cells by endpoint name within its own deadline. Columns
    with the same `fill` share one call.
    """

    column: Column
    fill: Callable[[Sequence[Endpoint]], Mapping[str, Mapping[str, Cell]]]


BUILT_IN_COLUMNS = (
    Column("phase", "Phase", sort="phase"),
    Column("workers", "Workers", sort="workers", number=True),
    Column("model", "Model", sort="model"),
    Column("strategy", "Strategy"),
    Column("cache", "Cache"),
    Column("cluster", "Cluster", default=False),
    Column("team", "Team", default=False),
    Column("revision", "Revision", default=False, number=True),
    Column("changed", "Changed", default=False, sort="changed"),
    Column("age", "Age", sort="created"),
)
_filled_columns: dict[str, FilledColumns] = {}


def register(filled: FilledColumns) -> None:
    """Register a column, replacing one with the same key. Called from AppConfig.ready."""
    _filled_columns[filled.column.key] = filled


def columns() -> tuple[Column, ...]:
    """Return all columns in display order: built-in, registered, age."""
    return (
        *BUILT_IN_COLUMNS[:-1],
        *(filled_column.column for filled_column in _filled_columns.values()),
        BUILT_IN_COLUMNS[-1],
    )


def choose_columns(kept: Any) -> tuple[Column, ...]:
    if not isinstance(kept, list):
        return tuple(column for column in columns() if column.default)
    return tuple(column for column in columns() if column.key in kept)


def cells(shown: Sequence[Column], rows: Sequence[Endpoint]) -> dict[str, dict[str, Cell]]:
    """Return the cells of registered columns; a failing `fill` leaves dashes."""
    filled_columns = [
        filled_column for filled_column in _filled_columns.values() if filled_column.column in shown
    ]
    answers: dict[Any, Mapping[str, Mapping[str, Cell]]] = {}
    for filled_column in filled_columns:
        if filled_column.fill not in answers:
            answers[filled_column.fill] = _fill_column(filled_column, rows)
    lost = Cell("", "Query failed; see the console log.")
    return {
        filled_column.column.key: {
            row.name: answers[filled_column.fill]
            .get(filled_column.column.key, {})
            .get(row.name, lost)
            for row in rows
        }
        for filled_column in filled_columns
    }


def has_deferred(shown: Sequence[Column]) -> bool:
    return any(column.key in _filled_columns for column in shown)


def _fill_column(one: FilledColumns, rows: Sequence[Endpoint]) -> Mapping[str, Mapping[str, Cell]]:
    try:
        return one.fill(rows)
    except Exception:  # a column's error must not break the list
        log.exception("Column %s failed; its cells stay empty", one.column.key)
        return {}
