"""Write the result of a pass: status, workers and events in one transaction.

Nothing is written once the claim is lost. Besides the removal, the only writer of these rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.claims import Claim
from console.web.templatetags.emberline import duration
from endpoints.choices import (
    DriftVerb,
    EventKind,
    Phase,
    PhaseReason,
    ProgressState,
    ProgressStep,
    Severity,
    Stage,
)
from endpoints.lifecycle.components import ComponentStatus
from endpoints.lifecycle.facts import LifecycleFacts, ObservedComponent
from endpoints.lifecycle.phases import PhaseDecision
from endpoints.lifecycle.remedies import Blame, remedy_of
from endpoints.lifecycle.steps import StepNow, merge_steps
from endpoints.models import DriftOrder, Endpoint, EndpointStatus, Replica
from endpoints.reconcile import events
from endpoints.reconcile.cluster_status import ClusterSurroundings, drift_happenings
from endpoints.reconcile.events import Occurrence
from endpoints.reconcile.roster import Roster
from endpoints.signals import send_replicas_changed

_MARKS = ("started_at", "restarts")
_KEPT = (*_MARKS, "admin_urls")
"""Component facts that identify its process."""
_UNHEALTHY_PHASES = (Phase.DEGRADED, Phase.UNAVAILABLE, Phase.FAILED)


@dataclass(slots=True)
class PassOutcome:
    """Result of one pass. `proven`: the mark of a successful probe, "" without one."""

    endpoint: Endpoint
    now: datetime
    facts: LifecycleFacts
    verdict: PhaseDecision
    steps: tuple[StepNow, ...]
    roster: Roster
    statuses: Mapping[str, ComponentStatus] = field(default_factory=dict)
    cache: ObservedComponent | None = None
    worker_hash: str = ""
    proven: str = ""
    url: str = ""
    detail: str = ""
    happenings: list[Occurrence] = field(default_factory=list)
    of_cluster: ClusterOutcome | None = None


@dataclass(frozen=True, slots=True)
class RollBack:
    failed: int
    number: int
    blame: Blame


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """Result of a pass on a cluster. `applied`: mark of what was applied, "" if nothing was.
    `carried_out`: completed drift orders; `overruled`: those that became invalid.
    """

    around: ClusterSurroundings
    wanted: int | None
    stood: int
    public_url: str = ""
    applied: str = ""
    carried_out: tuple[DriftOrder, ...] = ()
    overruled: tuple[DriftOrder, ...] = ()
    roll_back: RollBack | None = None


def write(held: Claim, outcome: PassOutcome) -> bool:
    """Write the outcome. Return False without writing if the claim is lost."""
    status = outcome.endpoint.status
    parts = _parts(outcome)
    happenings = [
        *outcome.happenings,
        *outcome.roster.happenings,
        *_part_happenings(outcome, status.parts, parts),
        *_proof_happenings(outcome),
        *_phase_happenings(outcome, status),
        *_cluster_happenings(outcome, status),
    ]
    moved = bool(outcome.roster.changed or outcome.roster.removed or status.url != outcome.url)
    with transaction.atomic():
        if not held.write(**_fields(outcome, parts)):
            return False
        for row in outcome.roster.changed:
            row.save()
        Replica.objects.filter(pk__in=[row.pk for row in outcome.roster.removed]).delete()
        events.write(outcome.endpoint, happenings, outcome.now)
        if outcome.of_cluster is not None:
            around = outcome.of_cluster.around
            events.write_cluster(outcome.endpoint, around.events, outcome.now)
            ended = (*outcome.of_cluster.carried_out, *outcome.of_cluster.overruled)
            done = [order.pk for order in ended]
            DriftOrder.objects.filter(pk__in=done).delete()
        if moved:
            send_replicas_changed(outcome.endpoint.name)
    return True


def is_unchanged(outcome: PassOutcome) -> bool:
    """Return whether a Ready endpoint was Ready before with the same processes and parts."""
    status, roster = outcome.endpoint.status, outcome.roster
    return (
        outcome.verdict.phase == status.phase == Phase.READY
        and outcome.endpoint.generation == status.observed_generation
        and outcome.proven == status.proven
        and not (roster.changed or roster.removed or roster.draining)
        and _parts(outcome) == status.parts
    )


def proof_mark(
    generation: int, rows: Iterable[Replica], statuses: Mapping[str, ComponentStatus]
) -> str:
    """Return a mark of the generation and the exact running processes."""
    marked = {
        "generation": generation,
        "workers": [
            [row.name, row.pid, row.restarts, row.started_at.isoformat() if row.started_at else ""]
            for row in rows
            if row.stage != Stage.LEAVING
        ],
        "components": {
            name: [part.url, *(str(part.facts.get(mark, "")) for mark in _MARKS)]
            for name, part in sorted(statuses.items())
        },
    }
    return hashlib.sha256(json.dumps(marked, sort_keys=True).encode()).hexdigest()


def _fields(outcome: PassOutcome, parts: dict[str, Any]) -> dict[str, Any]:
    endpoint, inputs, verdict = outcome.endpoint, outcome.facts, outcome.verdict
    status, now = endpoint.status, outcome.now
    fresh = status.clock_generation != endpoint.generation
    paused = verdict.phase is Phase.PAUSED
    idle = paused and inputs.autoscaled  # scaled to zero by the autoscaler, not lost
    admin = next((part.admin_url for part in outcome.statuses.values() if part.admin_url), "")
    return {
        "observed_generation": endpoint.generation,
        "phase": str(verdict.phase),
        "reason": verdict.reason[:64],
        "message": verdict.message,
        "remedy": remedy_of(verdict),
        "detail": outcome.detail,
        "steps": merge_steps(status.steps, now, outcome.steps, anew=fresh),
        "url": outcome.url or status.url,
        "admin_url": admin or status.admin_url,
        "parts": parts,
        "ready_replicas": inputs.current_ready,
        "worker_hash": outcome.worker_hash,
        "served_generation": (
            endpoint.generation if inputs.served or paused else status.served_generation
        ),
        "served_once": inputs.served_once and (idle or not paused),
        "proven": outcome.proven,
        "clock_generation": endpoint.generation,
        "generation_seen_at": now if fresh else status.generation_seen_at,
        "phase_since": now if verdict.phase != status.phase else status.phase_since,
        "start": _longest_start(outcome) or status.start,
        **_cluster_fields(outcome),
    }


def _longest_start(outcome: PassOutcome) -> dict[str, Any]:
    """Return the longest measured start of the workers with the desired spec, {} without any."""
    rows = outcome.roster.rows
    seconds = [row.start_s for row in rows if row.spec_hash == outcome.worker_hash and row.start_s]
    return {"model": outcome.endpoint.parsed.model, "seconds": max(seconds)} if seconds else {}


def _cluster_fields(outcome: PassOutcome) -> dict[str, Any]:
    of = outcome.of_cluster
    if of is None:
        return {}
    fields: dict[str, Any] = {
        "wanted_replicas": of.wanted,
        "stood_replicas": of.stood,
        "conditions": of.around.conditions,
        "drift": of.around.drift,
        "pods": of.around.pods,
        "public_url": of.public_url,
    }
    if of.applied:
        fields |= {"applied": of.applied, "applied_at": outcome.now}
    if of.roll_back is not None:
        fields["rolled_back"] = {
            "failed": of.roll_back.failed,
            "number": of.roll_back.number,
            "reason": of.roll_back.blame.reason,
            "message": of.roll_back.blame.message,
            "at": outcome.now.isoformat(),
        }
    return fields


def _cluster_happenings(outcome: PassOutcome, status: EndpointStatus) -> list[Occurrence]:
    of = outcome.of_cluster
    if of is None:
        return []
    happenings = drift_happenings(status.drift, of.around.drift)
    for order in of.carried_out:
        kind = EventKind.DRIFT_HEALED if order.verb == DriftVerb.HEAL else EventKind.DRIFT_ADOPTED
        happenings.append(
            Occurrence(kind, f"{order.key or order.workload}: {order.verb}.", order.key)
        )
    for order in of.overruled:
        text = f"{order.key}: not adopted, since a cluster object now owns this endpoint."
        happenings.append(Occurrence(EventKind.DRIFT_NOT_ADOPTED, text, order.key))
    if of.roll_back is not None:
        back = of.roll_back
        text = (
            f"Revision {back.failed} failed ({back.blame.reason}: {back.blame.message}) "
            f"Rolled back to revision {back.number}, the last that served."
        )
        happenings.append(Occurrence(EventKind.ROLLED_BACK, text, severity=Severity.WARNING))
    return happenings


def _parts(outcome: PassOutcome) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, part in outcome.statuses.items():
        parts[name] = {"ready": part.ready, "reason": part.reason, "message": part.message}
        parts[name] |= {mark: part.facts[mark] for mark in _KEPT if mark in part.facts}
        if part.ask_url:
            parts[name]["ask_url"] = part.ask_url
    if outcome.cache is not None:
        cache = outcome.cache
        parts["l2"] = {"ready": cache.ready, "reason": cache.reason, "message": cache.message}
    return parts


def _part_happenings(
    outcome: PassOutcome, before: Mapping[str, Any], now: Mapping[str, Any]
) -> list[Occurrence]:
    part_happenings = []
    for key, part in now.items():
        old = before.get(key)
        title = key[:1].upper() + key[1:]
        name = "L2" if key == "l2" else f"The {key}"
        was_ready = bool(old and old["ready"])
        if old and any(mark in old and old[mark] != part.get(mark, old[mark]) for mark in _MARKS):
            text = f"{name} restarted or was replaced."
            part_happenings.append(Occurrence(f"{title}Restarted", text, key, Severity.WARNING))
        if part["ready"] and not was_ready:
            part_happenings.append(Occurrence(f"{title}Ready", f"{name} is ready.", key))
        # During a rollout, a component that takes it over is not lost.
        if was_ready and not part["ready"] and outcome.facts.served:
            text = part["message"] or f"{name} is unreachable."
            part_happenings.append(Occurrence(f"{title}Lost", text, key, Severity.WARNING))
    return part_happenings


def _proof_happenings(outcome: PassOutcome) -> list[Occurrence]:
    error = outcome.facts.proof_error
    if error:
        return [Occurrence(EventKind.PROOF_FAILED, error, severity=Severity.WARNING)]
    if outcome.proven and outcome.endpoint.status.proven != outcome.proven:
        text = "A test request through the router was answered by the current workers."
        return [Occurrence(EventKind.PROOF_PASSED, text)]
    return []


def _phase_happenings(outcome: PassOutcome, status: EndpointStatus) -> list[Occurrence]:
    verdict = outcome.verdict
    if verdict.phase == status.phase and verdict.reason == status.reason:
        return []
    severity = Severity.WARNING if verdict.phase in _UNHEALTHY_PHASES else Severity.NORMAL
    same = verdict.reason == verdict.phase
    why = verdict.message if same else f"{verdict.reason}. {verdict.message}"
    if verdict.phase == status.phase:
        if severity is Severity.NORMAL:
            return []  # steps show progress within a phase
        text = f"{verdict.phase}: {why}"
    else:
        spent = (outcome.now - status.phase_since).total_seconds()
        text = f"{status.phase} → {verdict.phase} after {duration(spent)}: {why}"
    return [Occurrence(EventKind.PHASE_CHANGED, text, severity=severity)]


def first_status() -> dict[str, Any]:
    accepted = StepNow(ProgressStep.ACCEPTED, ProgressState.ACTIVE)
    return {
        "reason": PhaseReason.ACCEPTED,
        "message": "Waiting for the first reconcile pass.",
        "steps": merge_steps((), timezone.now(), (accepted,), anew=True),
    }
