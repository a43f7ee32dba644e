"""Crash detection between two observations of a program; a pure function.

Within one run of supervisord, a crash is:

    programs of the console (without our launcher)
        a new process, unless supervisord was asked to stop the previous one
        (`supervisorctl restart`)
    programs of workloads (endpoints, cache nodes)
        an unrequested exit counted by the launcher; rollouts, scaling and deletions are requested

A new run of supervisord (`make down`, `make up`, a reboot) resets the comparison, whatever the pids
are. A program that is not running has not returned yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from console.provisioners.local.programs import ProgramSeen


class ProgramStep(Enum):
    SAME = "same"  # nothing to write
    BEGAN = "began"  # new process without a crash
    RETURNED = "returned"  # crashed and restarted


@dataclass(frozen=True, slots=True)
class ProgramMark:
    """Stored identity of a process; `started_at` in epoch seconds."""

    supervisor: str
    pid: int
    started_at: float
    deaths: int = 0


@dataclass(frozen=True, slots=True)
class ProgramChange:
    step: ProgramStep
    deaths: int = 0
    """Crashes since the last observation; above 1 for workloads only."""


def make_mark(supervisor: str, seen: ProgramSeen) -> ProgramMark:
    return ProgramMark(supervisor, seen.pid, seen.started_at, seen.deaths or 0)


def compare_marks(before: ProgramMark | None, supervisor: str, seen: ProgramSeen) -> ProgramChange:
    now = make_mark(supervisor, seen)
    if before == now:
        return ProgramChange(ProgramStep.SAME)
    if before is None or before.supervisor != supervisor:
        return ProgramChange(ProgramStep.BEGAN)
    if not now.pid:
        return ProgramChange(ProgramStep.SAME)
    if seen.deaths is not None:
        died = max(0, now.deaths - before.deaths)
    else:
        died = int(_is_another(before, now) and not _was_requested(seen))
    return ProgramChange(ProgramStep.RETURNED, died) if died else ProgramChange(ProgramStep.BEGAN)


def _is_another(before: ProgramMark, now: ProgramMark) -> bool:
    """Compare processes; an earlier start of the same pid means the clock was set back."""
    return before.pid != 0 and (now.pid != before.pid or now.started_at > before.started_at)


def _was_requested(seen: ProgramSeen) -> bool:
    return seen.ending is not None and seen.ending.asked
