"""Cluster state around the workers: conditions, drift, events, component pods. From observations
only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from console.provisioners.base import ClusterEvent, Observation, PartCondition
from endpoints.choices import EventKind, PhaseReason, Severity
from endpoints.lifecycle.facts import Impairment, ObservedComponent, stage
from endpoints.reconcile.events import Occurrence

EXPOSING = ("route", "ingress", "load balancer", "certificate")
"""Conditions required for external access."""
DRIFT_KEPT = 50
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class ClusterSurroundings:
    conditions: list[dict[str, Any]] = field(default_factory=list)
    drift: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    exposure: tuple[ObservedComponent, ...] = ()
    drifted: Impairment | None = None
    scaled_by_drift: bool = False
    events: tuple[ClusterEvent, ...] = ()


def collect_surroundings(
    observed: Iterable[tuple[str, Observation]], workers: str
) -> ClusterSurroundings:
    every = list(observed)
    drift = [
        {"workload": name, "key": item.key, **asdict(item)}
        for name, observation in every
        for item in observation.drift
    ]
    parts = [(name, part) for name, observation in every for part in observation.parts]
    return ClusterSurroundings(
        conditions=[{"workload": name, **asdict(part)} for name, part in parts],
        drift=drift[:DRIFT_KEPT],
        pods=[
            row
            for name, observation in every
            if name != workers
            for row in _pods(name, observation)
        ],
        exposure=tuple(_exposing(part) for _, part in parts if part.part in EXPOSING),
        drifted=_drifted(drift),
        scaled_by_drift=any(
            row["workload"] == workers and row["key"].endswith(".spec.replicas") for row in drift
        ),
        events=tuple(event for _, observation in every for event in observation.events),
    )


def drift_happenings(
    before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]
) -> list[Occurrence]:
    old, new = _by_key(before), _by_key(now)
    occurrences = [
        Occurrence(
            EventKind.DRIFT_FOUND,
            f"{row['manager'] or 'An unknown manager'} set {key} to {_short(row['found'])}; "
            f"desired: {_short(row['wanted'])}.",
            row["object"],
            Severity.WARNING,
        )
        for key, row in new.items()
        if key not in old or old[key]["found"] != row["found"]
    ]
    ended = (row for key, row in old.items() if key not in new)
    return occurrences + [
        Occurrence(EventKind.DRIFT_ENDED, f"{row['key']} no longer drifts.", row["object"])
        for row in ended
    ]


def _by_key(rows: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {row["key"]: row for row in rows}


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:77]}..." if len(text) > 80 else text


def _drifted(rows: list[dict[str, Any]]) -> Impairment | None:
    if not rows:
        return None
    named = ", ".join(row["key"] for row in rows[:MAX_NAMED])
    more = f" and {len(rows) - MAX_NAMED} more" if len(rows) > MAX_NAMED else ""
    who = ", ".join(sorted({row["manager"] for row in rows if row["manager"]}))
    return Impairment(
        str(PhaseReason.DRIFTED),
        f"Drift from the configuration: {named}{more} changed{f' by {who}' if who else ''}.",
        "Heal to restore the configuration, or adopt the change, on the endpoint page.",
    )


def _exposing(part: PartCondition) -> ObservedComponent:
    message = part.message or (f"The {part.part} is not ready yet." if not part.ready else "")
    return ObservedComponent(part.part, bool(part.ready), part.reason, message)


def _pods(workload: str, seen: Observation) -> list[dict[str, Any]]:
    return [
        {
            "workload": workload,
            "name": replica.name,
            "state": str(replica.state),
            "stage": str(stage(replica)),
            "reason": replica.reason,
            "message": replica.message,
            "node": replica.node,
            "containers": list(replica.containers),
            "restarts": replica.restarts,
            "started_at": replica.started_at,
        }
        for replica in seen.replicas
    ]
