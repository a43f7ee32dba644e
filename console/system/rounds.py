"""What the console does by itself, again and again, and whether it still does.

Promises a line for each round a room has registered, with when it was last done and what to do
where it is late; each costs a few queries and asks nobody over the network. Everybody may read
them, so they name no endpoint. Must not know what a round is for.
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
    """There is nothing to do, or it is somebody else's to do: `text` says which."""
    LATE = "late"
    FAILING = "failing"


_LEVELS = {
    RoundState.WORKING: "green",
    RoundState.IDLE: "secondary",
    RoundState.LATE: "yellow",
    RoundState.FAILING: "red",
}
_FINE = (RoundState.WORKING, RoundState.IDLE)


@dataclass(frozen=True, slots=True)
class Round:
    """`last_at` is when it was last done, None when never or where there is nothing to do."""

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
        return self.state in _FINE


_rounds: list[Callable[[], Round]] = []


def register(ask: Callable[[], Round]) -> None:
    """A room's own round. Called from AppConfig.ready."""
    if ask not in _rounds:
        _rounds.append(ask)


def rounds() -> tuple[Round, ...]:
    return tuple(sorted((ask() for ask in _rounds), key=lambda one: one.name))


def verdicts() -> Iterator[PreflightResult]:
    """For the doctor: a console without them still serves."""
    try:
        found = rounds()
    except DatabaseError:
        return  # said already, by who asks the database
    now = timezone.now()
    for one in found:
        last = f" Last done {timesince(one.last_at, now)} ago." if one.last_at else ""
        yield PreflightResult(one.name, one.fine, f"{one.text}{last}", one.remedy, needed=False)
