"""Current state of every supervisord program, the console's own and those of workloads.

Read-only and bounded to seconds; an unreachable supervisord is a TemporaryError. `supervisor`
identifies one run of supervisord: a different value means that all programs were restarted with
it, which does not count as exits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from console.processkit.launch import LaunchRun
from console.provisioners.local import folders, state
from console.provisioners.local.observation import served_pid
from console.provisioners.local.rpc import ProcessInfo, ProcessState, Supervisor
from console.provisioners.local.supervisord import log_path, socket_path

DEADLINE_S = 2.0
SUPERVISORD = "supervisord"
"""Log name of supervisord itself, beside those of the programs."""

_LOG_LINES = 400
_ENDING = re.compile(r" (exited|stopped): (\S+) \((.*)\)\s*$")
_EXPECTATION = re.compile(r"; (not )?expected$")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Ending:
    """Exit of a program's last process, and whether supervisord was stopping it."""

    why: str
    requested: bool


@dataclass(frozen=True, slots=True)
class ProgramSeen:
    """State of a program. `pid` and `started_at` are 0 while it does not run. `owner` and `role`
    are those of its workload. `deaths` is counted by a workload's launcher, None for other
    programs.
    """

    name: str
    state: ProcessState
    pid: int
    started_at: float
    message: str = ""
    ending: Ending | None = None
    owner: str = ""
    role: str = ""
    deaths: int | None = None


@dataclass(frozen=True, slots=True)
class Supervised:
    supervisor: str
    programs: tuple[ProgramSeen, ...]


def list_programs(var: Path) -> Supervised:
    """Return all programs; raise TemporaryError or PermanentError if supervisord is down."""
    var = var.resolve()
    pid, infos = Supervisor(socket_path(var), DEADLINE_S).snapshot()
    endings = parse_endings(folders.tail(log_path(var, SUPERVISORD), _LOG_LINES))
    programs = [
        _program(var, name, info, endings.get(name)) for name, info in sorted(infos.items())
    ]
    return Supervised(_identity(pid), tuple(programs))


def owner_of(var: Path, name: str) -> str:
    """Return the owner of a workload's program, "" for other programs."""
    workload = state.load(var, name.rpartition("-")[0])
    return workload.owner if workload else ""


def tail(var: Path, name: str, lines: int) -> str:
    """Return the end of a program's log. The caller validates `name`."""
    return folders.tail(log_path(var, name), lines)


def parse_endings(log: str) -> dict[str, Ending]:
    """Return the last ending of each program in supervisord's log.

    This is the only record: over its socket, supervisord forgets how a process ended once the next
    one runs.
    """
    endings = {}
    for line in log.splitlines():
        if match := _ENDING.search(line):
            word, name, why = match.groups()
            endings[name] = Ending(_EXPECTATION.sub("", why), requested=word == "stopped")
    return endings


def _program(var: Path, name: str, info: ProcessInfo, ending: Ending | None) -> ProgramSeen:
    workload, _, index = name.rpartition("-")
    folder = state.replica_dir(var, workload, int(index)) if index.isdecimal() else None
    if not workload or folder is None or not folder.is_dir():
        return ProgramSeen(
            name, info.state, info.pid, info.started_at, info.spawn_error, ending=ending
        )
    record, run = state.load(var, workload), LaunchRun.read(folder)
    return ProgramSeen(
        name,
        info.state,
        served_pid(info.pid),
        info.started_at,
        info.spawn_error,
        ending=Ending(run.last_exit, requested=False) if run.last_exit else ending,
        owner=record.owner if record else "",
        role=record.role if record else "",
        deaths=run.deaths,
    )


def _identity(pid: int) -> str:
    """Return pid and start time: pids are reused, most often in containers."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return f"{_BOOT.read_text()[:8]}-{pid}-{stat[19]}"
    except OSError:
        return str(pid)
