"""Differences between two observations, and which of them are crashes."""

from __future__ import annotations

import pytest

from console.provisioners.local.programs import Ending, ProgramSeen, parse_endings
from console.provisioners.local.rpc import ProcessState
from console.system.program_watch import ProgramChange, ProgramMark, ProgramStep, compare_marks

KILLED = Ending("terminated by SIGKILL", requested=False)
ASKED = Ending("exit status 0", requested=True)
SAME, BEGAN, BACK = (
    ProgramChange(ProgramStep.SAME),
    ProgramChange(ProgramStep.BEGAN),
    ProgramChange(ProgramStep.RETURNED, 1),
)
BEFORE = ProgramMark("boot-1", 100, 1000.0)


def seen(
    pid: int = 100,
    started_at: float = 1000.0,
    ending: Ending | None = None,
    deaths: int | None = None,
) -> ProgramSeen:
    state = ProcessState.RUNNING if pid else ProcessState.BACKOFF
    return ProgramSeen("x", state, pid, started_at, ending=ending, deaths=deaths)


@pytest.mark.parametrize(
    ("before", "supervisor", "now", "verdict"),
    [
        pytest.param(BEFORE, "boot-1", seen(), SAME, id="nothing happened"),
        pytest.param(BEFORE, "boot-1", seen(ending=KILLED), SAME, id="an old death"),
        pytest.param(None, "boot-1", seen(ending=KILLED), BEGAN, id="first sight"),
        pytest.param(None, "boot-1", seen(0, 0.0), BEGAN, id="first sight, does not run"),
        pytest.param(BEFORE, "boot-1", seen(101, 1005.0, KILLED), BACK, id="died and is back"),
        pytest.param(BEFORE, "boot-1", seen(101, 1000.0, KILLED), BACK, id="within one second"),
        pytest.param(BEFORE, "boot-1", seen(100, 1005.0, KILLED), BACK, id="the pid came again"),
        pytest.param(BEFORE, "boot-1", seen(101, 1005.0, None), BACK, id="the log was rotated"),
        pytest.param(BEFORE, "boot-1", seen(101, 1005.0, ASKED), BEGAN, id="restarted by hand"),
        pytest.param(BEFORE, "boot-1", seen(100, 900.0, KILLED), BEGAN, id="clock put back"),
        pytest.param(BEFORE, "boot-1", seen(0, 0.0, KILLED), SAME, id="died, not yet back"),
        pytest.param(BEFORE, "boot-2", seen(101, 1005.0, KILLED), BEGAN, id="new supervisord"),
        pytest.param(BEFORE, "boot-2", seen(), BEGAN, id="new supervisord, same pids"),
        pytest.param(BEFORE, "boot-2", seen(0, 0.0), BEGAN, id="new supervisord, not up yet"),
        pytest.param(
            ProgramMark("boot-1", 0, 0.0), "boot-1", seen(101), BEGAN, id="its first start"
        ),
        pytest.param(
            ProgramMark("boot-1", 0, 0.0), "boot-1", seen(0, 0.0), SAME, id="still not up"
        ),
    ],
)
def test_console_program(
    before: ProgramMark | None, supervisor: str, now: ProgramSeen, verdict: ProgramChange
) -> None:
    assert compare_marks(before, supervisor, now) == verdict


@pytest.mark.parametrize(
    ("before", "supervisor", "now", "verdict"),
    [
        pytest.param(2, "boot-1", seen(deaths=2), SAME, id="nothing happened"),
        pytest.param(2, "boot-1", seen(101, 1005.0, KILLED, 3), BACK, id="died and is back"),
        pytest.param(
            2, "boot-1", seen(101, 1005.0, None, 5), ProgramChange(ProgramStep.RETURNED, 3), id="3"
        ),
        pytest.param(2, "boot-1", seen(101, 1005.0, KILLED, 2), BEGAN, id="replaced on purpose"),
        pytest.param(2, "boot-1", seen(101, 1005.0, None, 0), BEGAN, id="a new spec"),
        pytest.param(2, "boot-1", seen(0, 0.0, KILLED, 3), SAME, id="died, not yet back"),
        pytest.param(2, "boot-2", seen(101, 1005.0, None, 3), BEGAN, id="new supervisord"),
    ],
)
def test_workload_program(
    before: int, supervisor: str, now: ProgramSeen, verdict: ProgramChange
) -> None:
    assert compare_marks(ProgramMark("boot-1", 100, 1000.0, before), supervisor, now) == verdict


def test_supervisord_log_has_the_last_exit_of_each_program() -> None:
    log = """\
2026-11-21 06:00:00,001 INFO spawned: 'web' with pid 11
2026-11-21 06:00:01,001 WARN exited: web (terminated by SIGKILL; not expected)
2026-11-21 06:00:02,001 WARN stopped: valkey (terminated by SIGTERM)
2026-11-21 06:00:03,001 INFO exited: celery-beat (exit status 0; expected)
2026-11-21 06:00:04,001 WARN stopped: web (exit status 1)
2026-11-21 06:00:05,001 WARN exited: valkey (exit status 3; not expected)
2026-11-21 06:00:06,001 INFO success: valkey entered RUNNING state
"""
    assert parse_endings(log) == {
        "web": Ending("exit status 1", requested=True),
        "valkey": Ending("exit status 3", requested=False),
        "celery-beat": Ending("exit status 0", requested=False),
    }
    assert parse_endings("") == {}
