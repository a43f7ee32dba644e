"""Compare workers across passes: rows to write, events, and facts for the phase table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from console.provisioners.base import HUNG, ReplicaObservation, ReplicaState
from console.web.templatetags.emberline import duration
from endpoints.choices import EventKind, Severity, Stage
from endpoints.lifecycle.components import ComponentStatus, WorkerFacts
from endpoints.lifecycle.facts import ObservedWorker, stage
from endpoints.models import Endpoint, Replica
from endpoints.reconcile.events import Occurrence

DRAIN = timedelta(seconds=30)
"""Limit for the requests of a draining worker before it is stopped."""

CLOCK_SLACK = timedelta(seconds=1.5)
"""Start times may be reported in whole seconds."""

_RUNNING = (ReplicaState.STARTING, ReplicaState.READY, ReplicaState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class WorkerDemand:
    """Desired state of the workers. `leaving`: indexes about to be stopped or replaced. `rolls`:
    the platform replaces workers under new names.
    """

    endpoint: Endpoint
    replicas: int
    spec_hash: str
    simulated: bool
    leaving: frozenset[int]
    now: datetime
    rolls: bool = False


@dataclass(slots=True)
class Roster:
    rows: list[Replica] = field(default_factory=list)
    changed: list[Replica] = field(default_factory=list)
    removed: list[Replica] = field(default_factory=list)
    happenings: list[Occurrence] = field(default_factory=list)
    workers: list[ObservedWorker] = field(default_factory=list)

    @property
    def draining(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows if row.draining_since is not None)


def compare_workers(
    before: Iterable[Replica], seen: Iterable[ReplicaObservation], demand: WorkerDemand
) -> Roster:
    rows = {row.name: row for row in before}
    roster = Roster()
    for replica in seen:
        row = rows.pop(replica.name, None)
        roster.happenings += _worker_events(row, replica, demand)
        inputs = _facts(row, replica, demand)
        if row is None:
            row = Replica(endpoint=demand.endpoint, name=replica.name)
        if _has_changed(row, inputs):
            roster.changed.append(row)
        for name, value in inputs.items():
            setattr(row, name, value)
        roster.rows.append(row)
        roster.workers.append(_worker(row, replica, demand))
    for row in rows.values():
        roster.removed.append(row)
        roster.happenings.append(
            Occurrence(EventKind.WORKER_REMOVED, f"{row.name} was removed.", row.name)
        )
    return roster


def worker_facts(rows: Iterable[Replica]) -> tuple[WorkerFacts, ...]:
    return tuple(
        WorkerFacts(
            name=row.name,
            url=row.url,
            channels=dict(row.channels),
            ready=row.state == ReplicaState.READY,
            draining=row.draining_since is not None or row.state == ReplicaState.STOPPING,
            simulated=row.simulated,
        )
        for row in rows
        if row.url
    )


def may_stop(rows: Iterable[Replica], parts: Iterable[ComponentStatus], now: datetime) -> bool:
    """Return whether the leaving workers can stop without losing a request."""
    leaving = [
        row
        for row in rows
        if row.draining_since is not None
        and row.state == ReplicaState.READY
        and now - row.draining_since < DRAIN
    ]
    return all(_is_drained(row.name, part) for row in leaving for part in parts)


def _is_drained(worker: str, part: ComponentStatus) -> bool:
    listed = part.facts.get("workers")
    if not isinstance(listed, Mapping):
        return part.ready
    load = listed.get(worker)
    if load is None:
        return True
    return load.get("state") != "up" and not load.get("in_flight")


def _facts(row: Replica | None, seen: ReplicaObservation, demand: WorkerDemand) -> dict[str, Any]:
    leaving = seen.index in demand.leaving
    since = (row.draining_since if row else None) or demand.now
    current = seen.spec_hash == demand.spec_hash
    return {
        "index": seen.index,
        "state": str(seen.state),
        "url": seen.urls.get("http", ""),
        "channels": dict(seen.channels),
        "spec_hash": seen.spec_hash,
        "pid": seen.pid,
        "started_at": moment(seen.started_at),
        "restarts": seen.restarts,
        "restarts_ready": _baseline(row, seen),
        "start_s": _start_s(row, seen, demand.now),
        "draining_since": since if leaving else None,
        "simulated": demand.simulated if current or row is None else row.simulated,
        "message": seen.message,
        "reason": seen.reason[:64],
        "stage": str(stage(seen)) if demand.rolls else "",
        "node": seen.node,
        "created_at": moment(seen.created_at),
        "containers": list(seen.containers),
    }


def _baseline(row: Replica | None, seen: ReplicaObservation) -> int:
    """Return the restart count from which crashes are counted."""
    if seen.state is ReplicaState.READY:
        return seen.restarts
    if row is None:
        return 0
    if row.spec_hash != seen.spec_hash:
        return seen.restarts
    return min(row.restarts_ready, seen.restarts)


def _start_s(row: Replica | None, seen: ReplicaObservation, now: datetime) -> float | None:
    """Return the seconds until this process was first ready, None before. After a restart only the
    new process counts, not the age of its pod.
    """
    same = row is not None and row.spec_hash == seen.spec_hash and not _was_restarted(row, seen)
    if row is not None and same and (row.start_s or row.state == ReplicaState.READY):
        return row.start_s
    began = moment(seen.started_at if seen.restarts else seen.created_at or seen.started_at)
    if seen.state is not ReplicaState.READY or began is None:
        return None
    return max(0.0, (now - began).total_seconds())


def _worker(row: Replica, seen: ReplicaObservation, demand: WorkerDemand) -> ObservedWorker:
    return ObservedWorker(
        name=row.name,
        ready=seen.state is ReplicaState.READY,
        running=seen.state in _RUNNING,
        current=bool(demand.spec_hash) and seen.spec_hash == demand.spec_hash,
        # Where the platform rolls, indexes only order workers, and ended ones are replaced.
        surplus=not demand.rolls and seen.index >= demand.replicas,
        crashes=max(0, seen.restarts - row.restarts_ready),
        gave_up=not demand.rolls and seen.state is ReplicaState.EXITED,
        message=seen.message,
        leaving=demand.rolls and row.stage == Stage.LEAVING,
        stage=row.stage,
        reason=seen.reason,
    )


def _has_changed(row: Replica, facts: Mapping[str, Any]) -> bool:
    return any(getattr(row, name) != value for name, value in facts.items())


def _worker_events(
    row: Replica | None, seen: ReplicaObservation, demand: WorkerDemand
) -> list[Occurrence]:
    worker_events = []
    name = seen.name
    if row is None:
        worker_events.append(Occurrence(EventKind.WORKER_STARTED, f"{name} started.", name))
    elif seen.spec_hash != row.spec_hash:
        text = f"{name} restarted with the changed spec."
        worker_events.append(Occurrence(EventKind.WORKER_STARTED, text, name))
    elif _was_restarted(row, seen):
        worker_events.append(_restart(row, seen))
    elif row.state == ReplicaState.READY and seen.state not in (
        ReplicaState.READY,
        ReplicaState.STOPPING,
    ):
        text = f"{name} is unavailable: {(seen.message or str(seen.state)).rstrip('.')}."
        worker_events.append(Occurrence(EventKind.WORKER_LOST, text, name, Severity.WARNING))
    if seen.index in demand.leaving and (row is None or row.draining_since is None):
        text = f"{name} is draining: no new requests."
        worker_events.append(Occurrence(EventKind.WORKER_DRAINING, text, name))
    if seen.state is ReplicaState.READY and (row is None or row.state != ReplicaState.READY):
        start_s = _start_s(row, seen, demand.now)
        is_known = row is not None and row.start_s == start_s
        text = _ready_text(name, None if is_known else start_s)
        worker_events.append(Occurrence(EventKind.WORKER_READY, text, name))
    return worker_events


def _was_restarted(row: Replica, seen: ReplicaObservation) -> bool:
    """Return whether the process was restarted. A changed pid is no proof: the launcher's pid comes
    first.
    """
    if seen.restarts > row.restarts:
        return True
    if row.state == ReplicaState.BACKOFF:  # its end was reported
        return False
    now, before = moment(seen.started_at), row.started_at
    return now is not None and before is not None and abs(now - before) > CLOCK_SLACK


def _restart(row: Replica, seen: ReplicaObservation) -> Occurrence:
    pids = f": PID {row.pid} → {seen.pid}" if row.pid and seen.pid else ""
    ended = "hung" if seen.reason == HUNG else "crashed"
    what = f"{ended} and restarted" if seen.restarts > row.restarts else "was restarted"
    restarts = f"{seen.restarts} restart{'' if seen.restarts == 1 else 's'} so far"
    times = f" ({restarts})" if seen.restarts else ""
    first = seen.restarts - row.restarts_ready == 1  # a loop repeats one cause
    text = f"{seen.name} {what}{pids}{times}. {seen.message if first else ''}".rstrip()
    return Occurrence(EventKind.WORKER_RESTARTED, text, seen.name, Severity.WARNING)


def _ready_text(name: str, start_s: float | None) -> str:
    after = "" if start_s is None else f" after {duration(start_s)}"
    return f"{name} is ready{after}."


def moment(epoch_s: float) -> datetime | None:
    return datetime.fromtimestamp(epoch_s, UTC) if epoch_s else None
