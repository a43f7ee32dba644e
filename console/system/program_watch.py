"""Observe supervisord's programs and record crashes.

Each crash is recorded once despite concurrent observers: the stored mark is read before the query
and replaced only if unchanged. Crashes of the console's programs are audited; those of workloads
are counted here and reported by their owners (endpoint events, Cache page). Restarts nothing.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from django.conf import settings
from django.db import transaction
from django.db.models import F

from console.audit.record import diff, record
from console.provisioners.local import programs
from console.provisioners.local.programs import ProgramSeen
from console.system.comparison import ProgramChange, ProgramMark, ProgramStep, compare_marks
from console.system.models import ProcessSeen

log = logging.getLogger(__name__)

LOCAL = "local"
VERB = "process.restarted"


def observe() -> None:
    """Observe once; do nothing without supervisord. Raises ProvisionError if the query fails."""
    if settings.EMBERLINE.provisioner != LOCAL:
        return
    known = {row.name: row for row in ProcessSeen.objects.all()}
    found = programs.list_programs(settings.EMBERLINE.var)
    for seen in found.programs:
        row = known.pop(seen.name, None)
        verdict = compare_marks(_mark(row), found.supervisor, seen)
        if verdict.step is not ProgramStep.SAME:
            _store(row, found.supervisor, seen, verdict)
    ProcessSeen.objects.filter(pk__in=[row.pk for row in known.values()]).delete()


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
    facts = {
        "supervisor": supervisor,
        "pid": seen.pid,
        "started_at": as_datetime(seen.started_at),
        "deaths": seen.deaths or 0,
    }
    if row is None:
        ProcessSeen.objects.get_or_create(name=seen.name, defaults=facts)
        return
    same = ProcessSeen.objects.filter(
        pk=row.pk,
        supervisor=row.supervisor,
        pid=row.pid,
        started_at=row.started_at,
        deaths=row.deaths,
    )
    if verdict.step is not ProgramStep.RETURNED:
        same.update(**facts)
        return
    with transaction.atomic():
        written = same.update(
            **facts,
            restarts=F("restarts") + verdict.deaths,
            last_restart_at=facts["started_at"],
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
