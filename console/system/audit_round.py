"""The periodic verification of the audit log, for the System page."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from console.audit.integrity import BROKEN_REMEDY, chain_state
from console.system.rounds import Round, RoundState

_NAME, _PURPOSE = "audit log", "Links new audit rows, and looks for rows that were changed"
_LATE = timedelta(minutes=30)


def audit_round() -> Round:
    found = chain_state()
    if found is None or found.checked_at is None:
        state, text = RoundState.IDLE, "Nothing was verified yet."
        return Round(_NAME, _PURPOSE, state, None, text, "The first check is within 10 minutes.")
    last = found.checked_at
    if found.problem:
        text = f"The audit log was changed outside the console: {found.problem}."
        return Round(_NAME, _PURPOSE, RoundState.FAILING, last, text, BROKEN_REMEDY)
    since = found.waiting_since
    waits = since is not None and timezone.now() - since > _LATE
    if waits or timezone.now() - last > _LATE:
        text = "New audit rows are not linked: until then their removal cannot be seen."
        remedy = "Look at System for the worker and the timetable (beat)."
        return Round(_NAME, _PURPOSE, RoundState.LATE, last, text, remedy)
    text = f"Rows {found.first_sequence + 1} to {found.last_sequence} are linked."
    return Round(_NAME, _PURPOSE, RoundState.WORKING, last, text)
