"""Managed programs for pages and REST: current state and last observation.

Falls back to the last observation while supervisord is unreachable. One query for any number of
programs; logs of known programs only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from console.accounts.permissions import Somebody
from console.core import disk
from console.processkit.metrics import Registry
from console.provisioners.base import ProvisionError
from console.provisioners.crash_cause import ending_text
from console.provisioners.local import programs
from console.provisioners.local.programs import SUPERVISORD, ProgramSeen
from console.provisioners.local.rpc import REMEDY, ProcessState
from console.system.models import ProcessSeen
from console.system.program_watch import LOCAL, as_datetime
from console.web.shell.context import Banner

PURPOSES = {
    "web": "Console and REST API",
    "celery-worker": "Background tasks and their schedule: reconciles endpoints and cache tiers",
    "valkey": "Celery broker; holds no persistent data",
    "prometheus": "Metrics store of the dashboards",
    "alertmanager": "Delivers alerts to receivers",
}
LOG_LINES = 50
_ROLES = {
    "worker": "Worker of {}",
    "router": "Router of {}",
    "cache-node": "L2 node of {}",
    "benchmark": "Load generator of {}",
}
_LEVELS = {
    ProcessState.RUNNING: "green",
    ProcessState.STARTING: "blue",
    ProcessState.STOPPING: "orange",
    ProcessState.STOPPED: "secondary",
    ProcessState.EXITED: "yellow",
    ProcessState.BACKOFF: "red",
    ProcessState.FATAL: "red",
}
_FAILING = (ProcessState.BACKOFF, ProcessState.FATAL)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_LINE_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Process:
    name: str
    purpose: str
    state: str
    level: str
    pid: int
    started_at: datetime | None
    restarts: int
    last_restart_at: datetime | None
    message: str = ""
    last_line: str = ""


@dataclass(frozen=True, slots=True)
class System:
    """State of all programs; `problem` explains why `processes` is outdated, `remedy` the fix."""

    processes: tuple[Process, ...]
    reason: str = ""
    problem: str = ""
    remedy: str = ""


def load_system() -> System:
    if settings.EMBERLINE.provisioner != LOCAL:
        return System(
            (),
            "NotLocal",
            f"This console uses the provisioner “{settings.EMBERLINE.provisioner}”, "
            "which runs no processes on this host.",
            "Start Emberline with `make up` for local processes under supervisord.",
        )
    remembered = {row.name: row for row in ProcessSeen.objects.all()}
    try:
        running = programs.list_programs(settings.EMBERLINE.var)
    except ProvisionError as error:
        problem = error.message.removesuffix(REMEDY).strip()  # our remedy is more detailed
        return System(
            tuple(_unreachable(row) for row in remembered.values()),
            error.reason,
            f"{problem} Crashed processes are not restarted until it responds.",
            "Run `make down`, then `make up`.",
        )
    return System(
        tuple(_process(program, remembered.get(program.name)) for program in running.programs)
    )


def is_known(name: str) -> bool:
    if name == SUPERVISORD or name in PURPOSES:
        return True
    return ProcessSeen.objects.filter(name=name).exists()


def log_tail(name: str, lines: int = LOG_LINES) -> str:
    """Return the end of the log without control characters, with bounded line length."""
    text = _ESCAPES.sub("", programs.tail(settings.EMBERLINE.var, name, lines))
    return "\n".join(line[:_LINE_CHARACTERS] for line in text.splitlines())


def _process(seen: ProgramSeen, row: ProcessSeen | None) -> Process:
    failing = seen.state in _FAILING
    return Process(
        name=seen.name,
        purpose=_purpose(seen),
        state=seen.state.name.lower(),
        level=_LEVELS.get(seen.state, "secondary"),
        pid=seen.pid,
        started_at=as_datetime(seen.started_at),
        restarts=row.restarts if row else 0,
        last_restart_at=row.last_restart_at if row else None,
        message=_message(seen) if failing else "",
        last_line=log_tail(seen.name, 1) if failing else "",
    )


def _unreachable(row: ProcessSeen) -> Process:
    return Process(
        name=row.name,
        purpose=PURPOSES.get(row.name, ""),
        state="not watched",
        level="secondary",
        pid=row.pid,
        started_at=row.started_at,
        restarts=row.restarts,
        last_restart_at=row.last_restart_at,
    )


def _purpose(seen: ProgramSeen) -> str:
    kind, _, name = seen.owner.partition("/")
    owner = f"{kind.replace('-', ' ')} {name}".strip()
    if seen.role in _ROLES:
        return _ROLES[seen.role].format(owner)
    return PURPOSES.get(seen.name, owner)


def _message(seen: ProgramSeen) -> str:
    why = seen.ending.why if seen.ending else seen.message
    if seen.state is ProcessState.FATAL:
        return f"Failed permanently ({why or 'did not start'}); not restarted."
    return f"{ending_text(why or 'did not start')}; restarts automatically."


PREFIX = "emberline_console_disk_"


def disk_usage() -> disk.Disk | None:
    """Return the disk usage; None if the file system does not respond."""
    try:
        return disk.read_disk(settings.EMBERLINE.var)
    except OSError:
        return None


def disk_banner(viewer: Somebody) -> Banner | None:
    del viewer  # shown to all users
    usage = disk_usage()
    if usage is None:
        return Banner("disk", "danger", "Disk not responding", "See System.")
    if usage.state is disk.DiskState.OK:
        return None
    full = usage.state is disk.DiskState.FULL
    title = "Disk full" if full else "Disk almost full"
    lost = "Changes fail and metrics are not recorded; endpoints keep serving. " if full else ""
    level = "danger" if full else "warning"
    return Banner("disk", level, title, f"{usage.text}. {lost}See System.")


def expose_disk(registry: Registry) -> None:
    usage = disk_usage()
    if usage is None:
        return
    path = str(usage.path)
    for name, text, value in (
        ("free_bytes", "Free space of the file system of EMBERLINE_VAR.", usage.free_bytes),
        ("size_bytes", "Size of that file system.", usage.total_bytes),
        ("inodes_free_ratio", "Free share of its inodes.", usage.inodes_free_share),
        ("read_only", "1 while it is mounted read-only.", int(usage.read_only)),
    ):
        registry.gauge(PREFIX + name, text, path=path).set(value)
