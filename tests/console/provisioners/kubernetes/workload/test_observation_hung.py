"""Hung versus crashed pods, from kubelet documents and probe events."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from console.provisioners.base import ReplicaState
from console.provisioners.kubernetes.workload import observation
from console.provisioners.kubernetes.workload.observation import to_observation
from tests.console.provisioners.kubernetes.workload.test_observation import (
    BACKOFF,
    DEPLOYMENT,
    NOON,
    RUNNING,
    condition,
    container,
    deployment,
    event,
    looked,
    pod,
    terminated,
)

# A pod that crashed, restarted, became ready and then hung: the Ready condition changed after the
# current process started, and the old exit is still in lastState.
HANGS = container(RUNNING, started=True, ready=False, lastState=terminated("Error", 1, "x")) | {
    "conditions": [
        condition("Ready", "False", "ContainersNotReady")
        | {"lastTransitionTime": "2026-01-01T12:00:40Z"}
    ]
}
RESTARTED = container(
    {"running": {"startedAt": "2026-01-01T12:02:00Z"}},
    started=False,
    restartCount=1,
    lastState={
        "terminated": {
            "reason": "Error",
            "exitCode": 137,
            "startedAt": "2026-01-01T12:00:05Z",
            "finishedAt": "2026-01-01T12:01:58Z",
        }
    },
)
SILENT = (
    'Liveness probe failed: Get "http://10.1.2.3:8000/health": context deadline exceeded '
    "(Client.Timeout exceeded while awaiting headers)"
)


def unhealthy(
    at: str, message: str = SILENT, name: str = "demo-7d4b9f8c6d-x2x2x"
) -> dict[str, Any]:
    return event("Pod", name, reason="Unhealthy", message=message, lastTimestamp=at, count=6)


def seen_with(status: dict[str, Any], now: float, *found: dict[str, Any]) -> Any:
    body = pod("demo-7d4b9f8c6d-x2x2x", **status)
    reported = dataclasses.replace(looked(deployment(), body), now=now)
    return to_observation(
        reported, observation.workload_events(found, "demo", [DEPLOYMENT])
    ).replicas[0]


def test_hung_process_is_not_reported_as_its_earlier_crash() -> None:
    seen = seen_with(HANGS, NOON + 60)
    assert (seen.state, seen.reason) == (ReplicaState.UNKNOWN, "Hung")
    assert "exit code" not in seen.message
    reported = seen_with(HANGS, NOON + 60, unhealthy("2026-01-01T12:00:50Z"))
    assert (reported.state, reported.reason) == (ReplicaState.UNKNOWN, "Hung")
    assert "context deadline exceeded" in reported.message


def test_restart_after_a_crash_keeps_its_cause() -> None:
    """Its Ready condition changed when the previous process ended."""
    starting = container(
        RUNNING, started=True, lastState=terminated("Error", 1, "ValueError: x")
    ) | {"conditions": [condition("Ready", "False")]}
    seen = seen_with(starting, NOON + 60)
    assert (seen.state, seen.reason) == (ReplicaState.STARTING, "CrashLoopBackOff")
    assert "ValueError: x" in seen.message


def test_liveness_kill_is_reported_as_hung() -> None:
    crash = seen_with(RESTARTED, NOON + 130)
    assert crash.reason == "CrashLoopBackOff", "without the event nobody knows"
    hung = seen_with(RESTARTED, NOON + 130, unhealthy("2026-01-01T12:01:55Z"))
    assert (hung.state, hung.reason) == (ReplicaState.STARTING, "Hung")
    assert "hung and was restarted" in hung.message


@pytest.mark.parametrize(
    ("other_event", "why"),
    [
        (unhealthy("2026-01-01T11:50:00Z"), "of an earlier process"),
        (unhealthy("2026-01-01T12:01:55Z", "Readiness probe failed: 503"), "of another probe"),
        (unhealthy("2026-01-01T12:01:55Z", name="demo-7d4b9f8c6d-zzzzz"), "of another pod"),
    ],
)
def test_other_events_are_not_reported_as_hung(other_event: dict[str, Any], why: str) -> None:
    assert seen_with(RESTARTED, NOON + 130, other_event).reason == "CrashLoopBackOff", why


def test_process_that_exits_by_itself_did_not_hang() -> None:
    status = container(BACKOFF, lastState=terminated("Error", 1, "ValueError: x"))
    status["containerStatuses"][1]["lastState"]["terminated"]["finishedAt"] = "2026-01-01T12:01:58Z"
    seen = seen_with(status, NOON + 130, unhealthy("2026-01-01T12:01:55Z"))
    assert (seen.reason, "ValueError: x" in seen.message) == ("CrashLoopBackOff", True)
    ready = {"conditions": [condition("Ready", "True")]} | container(RUNNING, ready=True)
    seen = seen_with(ready, NOON + 130, unhealthy("2026-01-01T12:01:55Z"))
    assert seen.state is ReplicaState.READY
