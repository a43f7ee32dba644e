"""Connection timeouts: login, stalled transfer, idle.

A stalled client pins the memory of a partial value. Pure; polled periodically, so limits are
accurate to the polling interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachetier.engine.net.guards import Guards

if TYPE_CHECKING:
    from cachetier.engine.net.session import ClientSession

LOGIN = "login_timeout"
STALLED = "stalled"
IDLE = "idle_timeout"


def overdue(session: ClientSession, guards: Guards, now: float) -> str:
    """Return the reason to close the session, "" if none. Tracks progress between calls."""
    progress = session.progress()
    if progress != session.seen_progress:
        session.seen_progress = progress
        session.moved_at = now
    if not session.logged_in and _passed(guards.login_timeout_s, session.born_at, now):
        return LOGIN
    if session.is_between_requests():
        return IDLE if _passed(guards.idle_timeout_s, session.moved_at, now) else ""
    return STALLED if _passed(guards.stall_timeout_s, session.moved_at, now) else ""


def _passed(limit_s: float, since: float, now: float) -> bool:
    return limit_s > 0 and now - since > limit_s
