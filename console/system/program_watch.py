"""Observe supervisord's programs and record crashes.

Each crash is recorded once despite concurrent observers: the stored mark is read before the query
and replaced only if unchanged. Crashes of the console's programs are audited; those of workloads
are counted here and reported by their owners (endpoint events, Cache page), which are reconciled
soon, in case the change was not announced. A web process that does not respond is killed.

Within one run of supervisord, a crash is:

    programs of the console (without our launcher)
        a new process, unless supervisord stopped the previous one on request
        (`supervisorctl restart`)
    programs of workloads (endpoints, cache nodes)
        an unrequested exit counted by the launcher; rollouts, scaling and deletions are requested

A new run of supervisord (`make down`, `make up`, a reboot) resets the comparison, whatever the pids
are. A program that is not running has not returned yet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from django.conf import settings
from django.db import transaction
from django.db.models import F

from console.audit.record import diff, record
from console.provisioners.base import ReplicaObservation, ReplicaState
from console.provisioners.local import programs
from console.provisioners.local.hung import hung_processes
from console.provisioners.local.probes import LATE, ProbeTarget, probe_targets
from console.provisioners.local.programs import ProgramSeen
from console.system import changes
from console.system.models import ProcessSeen

log = logging.getLogger(__name__)

LOCAL = "local"
WEB = "web"
_PROBE_S = 5.0
VERB = "process.restarted"


def observe() -> None:
    """Observe once; do nothing without supervisord. Raises ProvisionError if the query fails."""
    if settings.EMBERLINE.provisioner != LOCAL:
        return
    rows = {row.name: row for row in ProcessSeen.objects.all()}
    running = programs.list_programs(settings.EMBERLINE.var)
    changed = set()
    for program in running.programs:
        row = rows.pop(program.name, None)
        verdict = compare_marks(_mark(row), running.supervisor, program)
        if verdict.step is not ProgramStep.SAME:
            _store(row, running.supervisor, program, verdict)
            changed.add(program.owner)
    changes.announce(changed)
    ProcessSeen.objects.filter(pk__in=[row.pk for row in rows.values()]).delete()
    _end_hung_web(running.programs)


def _end_hung_web(running: Iterable[ProgramSeen]) -> None:
    """Kill the web process if its health check has timed out for too long; supervisord starts it
    again. The routers and workers of endpoints are observed by their reconciler.
    """
    web = next((program for program in running if program.name == WEB and program.pid), None)
    if web is None:
        return
    host = settings.EMBERLINE.host
    address = "127.0.0.1" if host == "0.0.0.0" or ":" in host else host  # probes are IPv4
    target = ProbeTarget(address, settings.EMBERLINE.port, "/healthz", _PROBE_S)
    late = probe_targets([target])[0].startswith(LATE)
    state = ReplicaState.UNKNOWN if late else ReplicaState.READY
    hung_processes.end(WEB, [ReplicaObservation(WEB, 0, state, "", {}, web.pid)])


def as_datetime(epoch_s: float) -> datetime | None:
    return datetime.fromtimestamp(epoch_s, UTC) if epoch_s else None


def _mark(row: ProcessSeen | None) -> ProgramMark | None:
    if row is None:
        return None
    started_at = row.started_at.timestamp() if row.started_at else 0.0
    return ProgramMark(row.supervisor, row.pid, started_at, row.deaths)


def _store(
    row: ProcessSeen | None, supervisor: str, seen: ProgramSeen, verdict: ProgramChange
) -> None:
    fields = {
        "supervisor": supervisor,
        "pid": seen.pid,
        "started_at": as_datetime(seen.started_at),
        "deaths": seen.deaths or 0,
    }
    if row is None:
        ProcessSeen.objects.get_or_create(name=seen.name, defaults=fields)
        return
    same = ProcessSeen.objects.filter(
        pk=row.pk,
        supervisor=row.supervisor,
        pid=row.pid,
        started_at=row.started_at,
        deaths=row.deaths,
    )
    if verdict.step is not ProgramStep.RETURNED:
        same.update(**fields)
        return
    with transaction.atomic():
        written = same.update(
            **fields, restarts=F("restarts") + verdict.deaths, last_restart_at=fields["started_at"]
        )
        if written and seen.deaths is None:
            _record_crash(row, seen)


def _record_crash(row: ProcessSeen, seen: ProgramSeen) -> None:
    changes = diff(
        {"pid": row.pid, "started_at": row.started_at},
        {"pid": seen.pid, "started_at": as_datetime(seen.started_at)},
    )
    ended = seen.ending.why if seen.ending else "not known"
    record(None, VERB, f"process/{seen.name}", {**changes, "ended": ended})
    log.warning("%s crashed (%s) and was restarted as pid %d", seen.name, ended, seen.pid)


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
    return seen.ending is not None and seen.ending.requested
