"""Did a program die and come back between two looks? A pure function of what the looks saw.

What is a death. Under one run of supervisord:

    the console's own programs (no launcher of ours around them)
        another process than before, unless supervisord says it had been asked to end the last
        one (a person's `supervisorctl restart`)
    programs of workloads (endpoints, cache nodes)
        its launcher counted a death: one that nobody had asked for. A rollout, a scaling, a
        deletion ask, so they never count, and neither does the new process they start

Another run of supervisord (`make down`, `make up`, a reboot) starts everything anew: that is a
new beginning, whatever the pids say. A program which does not run has not come back yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from console.provisioners.local.programs import ProgramSeen


class ProgramStep(Enum):
    SAME = "same"  # nothing to write
    BEGAN = "began"  # another process, and nobody died: remember it
    RETURNED = "returned"  # it died and is back


@dataclass(frozen=True, slots=True)
class ProgramMark:
    """What is remembered of a program to know its process again. `started_at` in epoch seconds."""

    supervisor: str
    pid: int
    started_at: float
    deaths: int = 0


@dataclass(frozen=True, slots=True)
class ProgramChange:
    step: ProgramStep
    deaths: int = 0
    """How many, when it returned. Several between two looks are known of workloads only."""


def mark(supervisor: str, seen: ProgramSeen) -> ProgramMark:
    return ProgramMark(supervisor, seen.pid, seen.started_at, seen.deaths or 0)


def compare(before: ProgramMark | None, supervisor: str, seen: ProgramSeen) -> ProgramChange:
    now = mark(supervisor, seen)
    if before == now:
        return ProgramChange(ProgramStep.SAME)
    if before is None or before.supervisor != supervisor:
        return ProgramChange(ProgramStep.BEGAN)
    if not now.pid:
        return ProgramChange(ProgramStep.SAME)
    if seen.deaths is not None:
        died = max(0, now.deaths - before.deaths)
    else:
        died = int(_is_another(before, now) and not _was_asked(seen))
    return ProgramChange(ProgramStep.RETURNED, died) if died else ProgramChange(ProgramStep.BEGAN)


def _is_another(before: ProgramMark, now: ProgramMark) -> bool:
    """The same pid with an earlier start is the same process: the clock was put back."""
    return before.pid != 0 and (now.pid != before.pid or now.started_at > before.started_at)


def _was_asked(seen: ProgramSeen) -> bool:
    return seen.ending is not None and seen.ending.asked
