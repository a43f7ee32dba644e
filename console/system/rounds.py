"""Registry of periodic jobs and their lateness.

A job reports its last run, and a fix if late, in a few queries without network access. Any user may
read the list, so it names no endpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db import DatabaseError
from django.utils import timezone
from django.utils.timesince import timesince

from console.audit.integrity import BROKEN_REMEDY, chain_state
from console.core.registry import Registry
from console.processkit.metrics import Registry as MetricsRegistry
from console.system.collector import MetricsCollector
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
_AUDIT = ("audit log", "Seals new audit rows and verifies existing ones")
_CLOCK = ("clock", "Compares the clock with the time that has passed")
_MOVED = timedelta(seconds=5)
_AUDIT_LATE = timedelta(minutes=30)


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


_rounds: Registry[Callable[[], Round]] = Registry()
register_round = _rounds.register


def list_rounds() -> tuple[Round, ...]:
    return tuple(sorted((ask() for ask in _rounds), key=lambda one: one.name))


class RoundMetrics(MetricsCollector[Round]):
    """Whether each job is fine, for alert rules."""

    unknown = "rounds_unknown"

    def read(self) -> Sequence[Round]:
        return list_rounds()

    def add_series(self, registry: MetricsRegistry, row: Round) -> None:
        text = "1 while the background job works or has nothing to do, 0 while it is late or fails."
        name = "emberline_console_background_job_ok"
        registry.gauge(name, text, background_job=row.name).set(row.fine)


def round_checks() -> Iterator[PreflightResult]:
    try:
        rounds = list_rounds()
    except DatabaseError:
        return  # reported by the database check
    now = timezone.now()
    for check in rounds:
        last = f" Last run {timesince(check.last_at, now)} ago." if check.last_at else ""
        yield PreflightResult(
            check.name, check.fine, f"{check.text}{last}", check.remedy, needed=False
        )


def _clock_offset() -> float:
    """Return the wall clock less a clock that nothing sets and that counts suspended time."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


_OFFSET = _clock_offset()  # as this process started


def clock_round() -> Round:
    """Return whether somebody set this machine's clock since the process started."""
    moved = timedelta(seconds=round(_clock_offset() - _OFFSET))
    if abs(moved) < _MOVED:
        return Round(*_CLOCK, RoundState.WORKING, None, "The clock was not set since the start.")
    where = "ahead" if moved > timedelta(0) else "back"
    text = f"The clock was set {where} by {abs(moved)} since the console started."
    remedy = (
        "Check the machine's time service. If the clock was wrong before, so are times recorded "
        "until then; restart the console once it is right."
    )
    return Round(*_CLOCK, RoundState.FAILING, None, text, remedy)


def audit_round() -> Round:
    """Return the state of the periodic verification of the audit log."""
    chain = chain_state()
    if chain is None or chain.checked_at is None:
        state, text = RoundState.IDLE, "Not verified yet."
        return Round(*_AUDIT, state, None, text, "The first verification runs within 10 minutes.")
    last = chain.checked_at
    if chain.problem:
        text = f"The audit log was changed outside the console: {chain.problem}."
        return Round(*_AUDIT, RoundState.FAILING, last, text, BROKEN_REMEDY)
    text = ""
    if chain.waiting_since is not None and timezone.now() - chain.waiting_since > _AUDIT_LATE:
        text = "New audit rows are not sealed; their removal would not be detected."
    elif timezone.now() - last > _AUDIT_LATE:
        text = "The audit log is not verified: changes outside the console would not be detected."
    if text:
        remedy = "Check celery-worker on the System page (on Kubernetes: worker and beat)."
        return Round(*_AUDIT, RoundState.LATE, last, text, remedy)
    text = f"Rows {chain.first_sequence + 1} to {chain.last_sequence} are sealed."
    return Round(*_AUDIT, RoundState.WORKING, last, text)
