"""The columns of the list of endpoints. Other rooms register columns of their own.

Promises that numbers which somebody else must be asked for never hold up the page: they are filled
when it asks again, and a column which cannot be filled says why in each of its cells.
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
    """`sort`: the word of an address which sorts by it, "" for none. `number`: set right."""

    key: str
    label: str
    default: bool = True
    sort: str = ""
    number: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """`why` says what a missing text means."""

    text: str = ""
    why: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class FilledColumns:
    """A column of another room; `fill` answers by name, within a deadline of its own. Columns with
    the same `fill` are asked for once."""

    column: Column
    fill: Callable[[Sequence[Endpoint]], Mapping[str, Mapping[str, Cell]]]


OWN = (
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
_filled: dict[str, FilledColumns] = {}


def register(filled: FilledColumns) -> None:
    """Called from AppConfig.ready; a second call for the same key replaces the first."""
    _filled[filled.column.key] = filled


def columns() -> tuple[Column, ...]:
    """All there are, in the order in which they stand: ours, others', the age last."""
    return (*OWN[:-1], *(one.column for one in _filled.values()), OWN[-1])


def chosen(kept: Any) -> tuple[Column, ...]:
    """Those which a person keeps; what is not (or no longer) a column's key is passed over."""
    if not isinstance(kept, list):
        return tuple(column for column in columns() if column.default)
    return tuple(column for column in columns() if column.key in kept)


def cells(shown: Sequence[Column], rows: Sequence[Endpoint]) -> dict[str, dict[str, Cell]]:
    """Of other rooms' columns, by column and endpoint. A room which fails leaves dashes."""
    wanted = [one for one in _filled.values() if one.column in shown]
    answers: dict[Any, Mapping[str, Mapping[str, Cell]]] = {}
    for one in wanted:
        if one.fill not in answers:
            answers[one.fill] = _asked(one, rows)
    lost = Cell("", "It could not be found out; the console's log says why.")
    return {
        one.column.key: {
            row.name: answers[one.fill].get(one.column.key, {}).get(row.name, lost) for row in rows
        }
        for one in wanted
    }


def waiting(shown: Sequence[Column]) -> bool:
    """Some of these columns are filled later."""
    return any(column.key in _filled for column in shown)


def _asked(one: FilledColumns, rows: Sequence[Endpoint]) -> Mapping[str, Mapping[str, Cell]]:
    try:
        return one.fill(rows)
    except Exception:  # a list must not fail because of a column
        log.exception("the column %s could not be filled", one.column.key)
        return {}
