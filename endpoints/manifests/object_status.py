"""Status of an InferenceEndpointConfig, computed from its endpoint.

Uses only fields and values of the published definition (and `url`, which ours adds). An unchanged
status compares equal including its times, so that nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ACCEPTED, SYNCED, READY = "Accepted", "Synced", "Ready"
_STATES: Final = {
    "Pending": "DeploymentPending",
    "Provisioning": "DeploymentInProgress",
    "Updating": "DeploymentInProgress",
    "Ready": "DeploymentComplete",
    "Degraded": "DeploymentComplete",
    "Unavailable": "DeploymentComplete",
    "Pausing": "DeploymentInProgress",
    "Paused": "DeploymentComplete",
    "Failed": "DeploymentFailed",
    "Deleting": "DeletionInProgress",
}
_DEPARTED_REASONS: Final = {
    "AsSaid": "The endpoint matches the object.",
    "RolledBack": "The object's last change failed: the endpoint was rolled back to the last "
    "revision that served.",
    "ChangedElsewhere": "The endpoint was changed later; the object's next change overrides it.",
}
_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class EndpointSummary:
    """An endpoint's state; `phase` "" if it does not exist yet. `refused`: why the present object
    was rejected. `generation`: that of the object last applied. `departed`: why the endpoint
    differs from that object, "" if it does not. `notes`: what of the object has no effect here.
    """

    refused: str = ""
    refused_reason: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    current: bool = True
    replicas: int = 0
    ready: int = 0
    url: str = ""
    generation: int = 0
    departed: str = ""
    notes: str = ""
    workload: str = ""
    metrics: Mapping[str, Any] | None = None


def status(seen: EndpointSummary, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return the status. `now` (RFC 3339) is used only for what changes."""
    document: dict[str, Any] = {
        "state": _state(seen),
        "replicas": seen.replicas,
        "conditions": _conditions(seen, before.get("conditions") or [], now),
    }
    if seen.generation:
        document["observedGeneration"] = seen.generation
    if seen.url:
        document["url"] = seen.url
    if seen.workload:
        document["selector"] = f"emberline.dev/workload={seen.workload}"
        document["deploymentStatus"] = _deployment(seen, before.get("deploymentStatus") or {}, now)
    if seen.metrics is not None:
        document["metricsStatus"] = dict(seen.metrics)
    return document


def _state(seen: EndpointSummary) -> str:
    if not seen.phase:
        return "DeploymentFailed" if seen.refused else "DeploymentPending"
    if seen.phase not in ("Deleting", "Failed", "Pending") and not seen.current:
        return "DeploymentInProgress"
    if seen.refused and seen.phase != "Deleting":
        return "DeploymentFailed"
    return _STATES.get(seen.phase, "DeploymentInProgress")


def _conditions(
    seen: EndpointSummary, before: list[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    ready = seen.phase == "Ready" and seen.current
    rows = [
        (ACCEPTED, not seen.refused, seen.refused_reason if seen.refused else "Applied",
         seen.refused or "The object was applied to the endpoint."),
        (READY, ready, seen.reason or "Pending", seen.message or "No workload is running yet."),
    ]  # fmt: skip
    if seen.phase:
        reason = seen.departed or "AsSaid"
        text = " ".join(filter(None, (_DEPARTED_REASONS.get(reason, reason), seen.notes)))
        rows.insert(1, (SYNCED, not seen.departed, reason, text))
    earlier = {str(condition.get("type")): condition for condition in before}
    generation = {"observedGeneration": seen.generation} if seen.generation else {}
    conditions = []
    for kind, true, reason, message in rows:
        word = "True" if true else "False"
        then = earlier.get(kind) or {}
        same = then.get("status") == word
        condition = {
            "type": kind,
            "status": word,
            "reason": reason,
            "message": message[:_LONGEST],
            "lastTransitionTime": then.get("lastTransitionTime", now) if same else now,
        }
        conditions.append(condition | generation)
    return conditions


def _deployment(seen: EndpointSummary, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    deployment = {
        "name": seen.workload,
        "deploymentObjectOverallState": _state(seen),
        "message": seen.message[:_LONGEST],
        "reason": seen.reason,
        "status": {
            "replicas": seen.replicas,
            "readyReplicas": seen.ready,
            "availableReplicas": seen.ready,
            "unavailableReplicas": max(0, seen.replicas - seen.ready),
        },
    }
    same = {key: value for key, value in before.items() if key != "lastUpdated"} == deployment
    return deployment | {"lastUpdated": before["lastUpdated"] if same else now}
