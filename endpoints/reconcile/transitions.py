"""Expected absences: endpoints and workers that are starting, updating or stopping on purpose.

Alert rules exclude them. A start is expected for the grace period below, then alerts like a loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from django.db.models import Exists, F, OuterRef

from console.provisioners.base import ReplicaState
from endpoints import selectors
from endpoints.choices import Phase
from endpoints.models import Endpoint, Replica

FACTOR: Final = 3.0
"""Allowance for a start slower than the last one (cold page cache, busy node)."""
SHORTEST_S: Final = 120.0
_RISING = (Phase.PENDING, Phase.PROVISIONING, Phase.UPDATING)
_FALLING = (Phase.PAUSING, Phase.PAUSED, Phase.DELETING)
_STEADY = (Phase.READY, Phase.DEGRADED, Phase.FAILED)
_STARTING = (ReplicaState.STARTING, ReplicaState.BACKOFF, ReplicaState.UNKNOWN)


class Transition(StrEnum):
    """START: nothing has served yet. UPDATE: the previous revision has. STOP: pause or deletion."""

    START = "start"
    UPDATE = "update"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class ExpectedAbsence:
    """Absence that raises no alert. `transition` is None for an endpoint that should serve now;
    `workers` are those that may not be ready yet.
    """

    endpoint: str
    transition: Transition | None
    workers: tuple[str, ...]


def grace_s(endpoint: Endpoint) -> float:
    """Return the grace period of a start (s): a multiple of this model's last measured start, else
    the rollout deadline, which bounds both.
    """
    spec, start = endpoint.parsed, endpoint.status.start
    deadline = float(spec.rollout.deadline_s)
    if start.get("model") != spec.model:
        return deadline
    return min(deadline, max(SHORTEST_S, spec.rollout.drain_s + FACTOR * start["seconds"]))


def expected_absences(now: datetime) -> list[ExpectedAbsence]:
    """Return the endpoints in transition or with starting workers, in two queries."""
    unready = Replica.objects.filter(endpoint=OuterRef("pk"), start_s=None, state__in=_STARTING)
    rows = selectors.with_workers().exclude(
        ~Exists(unready),
        deleted_at=None,
        generation=F("status__observed_generation"),
        status__phase__in=_STEADY,
    )
    absences = (_expected_absence(endpoint, now) for endpoint in rows)
    return [absence for absence in absences if absence.transition or absence.workers]


def _expected_absence(endpoint: Endpoint, now: datetime) -> ExpectedAbsence:
    within = grace_s(endpoint)
    starting = tuple(
        worker.name
        for worker in endpoint.replicas.all()
        if _is_starting(worker) and _age_s(worker, now) <= within
    )
    return ExpectedAbsence(endpoint.name, _transition(endpoint, now, within), starting)


def _transition(endpoint: Endpoint, now: datetime, within: float) -> Transition | None:
    status = endpoint.status
    if endpoint.shown_phase in _FALLING or not selectors.wanted_replicas(endpoint):
        return Transition.STOP
    rolls = status.phase == Phase.UNAVAILABLE and status.served_generation != endpoint.generation
    rising = status.phase in _RISING or rolls or not endpoint.current
    if not rising or (now - status.phase_since).total_seconds() > within:
        return None
    return Transition.UPDATE if status.served_once else Transition.START


def _is_starting(worker: Replica) -> bool:
    fresh = worker.start_s is None and worker.restarts <= worker.restarts_ready
    return fresh and worker.state in _STARTING


def _age_s(worker: Replica, now: datetime) -> float:
    began = worker.created_at or worker.started_at
    return (now - began).total_seconds() if began else 0.0
