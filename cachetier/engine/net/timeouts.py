"""Connection timeouts: login, stalled transfer, idle.

A stalled client pins the memory of a partial value. Pure; polled periodically, so limits are
accurate to the polling interval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cachetier.engine.net.guards import Guards

LOGIN = "login_timeout"
STALLED = "stalled"
IDLE = "idle_timeout"


class TimedSession(Protocol):
    """Session state read by the timeouts. Times are on the monotonic clock."""

    logged_in: bool
    born_at: float
    moved_at: float
    seen_progress: tuple[int, int]

    def progress(self) -> tuple[int, int]: ...

    def is_between_requests(self) -> bool: ...


class OpenSession(TimedSession, Protocol):
    """Session as registered on the node, for CLIENT LIST, CLIENT KILL and the sweep."""

    id: int
    user: str
    name: str
    peer: str
    local: str
    library: dict[str, str]
    version: int
    last_command: str
    active_at: float
    closing: bool
    hang_up: Callable[[], None]


def find_timeout(session: TimedSession, guards: Guards, now: float) -> str:
    """Return the reason to close the session, "" if none. Tracks progress between calls."""
    progress = session.progress()
    if progress != session.seen_progress:
        session.seen_progress = progress
        session.moved_at = now
    if not session.logged_in and _has_passed(guards.login_timeout_s, session.born_at, now):
        return LOGIN
    if session.is_between_requests():
        return IDLE if _has_passed(guards.idle_timeout_s, session.moved_at, now) else ""
    return STALLED if _has_passed(guards.stall_timeout_s, session.moved_at, now) else ""


def _has_passed(limit_s: float, since: float, now: float) -> bool:
    return limit_s > 0 and now - since > limit_s
