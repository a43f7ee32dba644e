"""Registry of periodic jobs and their lateness.

A job reports its last run, and a fix if late, in a few queries without network access. Any user may
read the list, so it names no endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db import DatabaseError
from django.utils import timezone
from django.utils.timesince import timesince

from console.system.preflight import PreflightResult


class RoundState(StrEnum):
    WORKING = "working"
    IDLE = "idle"
    """Nothing to do, or done elsewhere; `text` states which."""
    LATE = "late"
    FAILING = "failing"


_LEVELS = {
    RoundState.WORKING: "green",
    RoundState.IDLE: "secondary",
    RoundState.LATE: "yellow",
    RoundState.FAILING: "red",
}
_OK_STATES = (RoundState.WORKING, RoundState.IDLE)


@dataclass(frozen=True, slots=True)
class Round:
    """Periodic job; `last_at` is its last run, None if never run or nothing to do."""

    name: str
    purpose: str
    state: RoundState
    last_at: datetime | None
    text: str
    remedy: str = ""

    @property
    def level(self) -> str:
        return _LEVELS[self.state]

    @property
    def fine(self) -> bool:
        return self.state in _OK_STATES


_rounds: list[Callable[[], Round]] = []


def register_round(ask: Callable[[], Round]) -> None:
    if ask not in _rounds:
        _rounds.append(ask)


def list_rounds() -> tuple[Round, ...]:
    return tuple(sorted((ask() for ask in _rounds), key=lambda one: one.name))


def round_checks() -> Iterator[PreflightResult]:
    try:
        found = list_rounds()
    except DatabaseError:
        return  # reported by the database check
    now = timezone.now()
    for one in found:
        last = f" Last done {timesince(one.last_at, now)} ago." if one.last_at else ""
        yield PreflightResult(one.name, one.fine, f"{one.text}{last}", one.remedy, needed=False)
