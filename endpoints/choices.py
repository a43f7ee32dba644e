"""Names and labels of what an endpoint can be; colours are the templates' business.

Must not know Django: the lifecycle table, which is pure, speaks in these words.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    READY = "Ready"
    DEGRADED = "Degraded"
    PAUSED = "Paused"
    DELETING = "Deleting"
    FAILED = "Failed"


SETTLED = frozenset({Phase.READY, Phase.PAUSED})
"""Phases which last until something happens: pages poll less often."""


class Reason(StrEnum):
    """Stable codes beside a phase. Provisioners and components add their own."""

    ACCEPTED = "Accepted"
    WAITING_FOR_CACHE_TIER = "WaitingForCacheTier"
    STARTING_WORKERS = "StartingWorkers"
    WAITING_FOR_WORKERS = "WaitingForWorkers"
    WAITING_FOR_ROUTER = "WaitingForRouter"
    PROVING = "Proving"
    UPDATING_WORKERS = "UpdatingWorkers"
    DRAINING = "Draining"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    SERVING = "Serving"
    WORKER_UNAVAILABLE = "WorkerUnavailable"
    NO_WORKER_AVAILABLE = "NoWorkerAvailable"
    ROUTER_UNAVAILABLE = "RouterUnavailable"
    L2_UNAVAILABLE = "L2Unavailable"
    NOT_SERVING = "NotServing"
    WORKERS_CRASH_LOOPING = "WorkersCrashLooping"
    DEADLINE_EXCEEDED = "DeployDeadlineExceeded"
    REMOVING_ROUTER = "RemovingRouter"
    STOPPING_WORKERS = "StoppingWorkers"


class StepState(StrEnum):
    WAITING = "waiting"
    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"


class Step(StrEnum):
    """In the order in which they happen and are shown."""

    ACCEPTED = "Accepted"
    CACHE_TIER = "CacheTier"
    WORKERS_STARTED = "WorkersStarted"
    WORKERS_READY = "WorkersReady"
    ROUTER_READY = "RouterReady"
    SERVING = "Serving"
    WORKERS_STOPPED = "WorkersStopped"
    ROUTER_REMOVED = "RouterRemoved"


STEP_LABELS = {
    Step.ACCEPTED: "Accepted",
    Step.CACHE_TIER: "Cache tier ready",
    Step.WORKERS_STARTED: "Workers started",
    Step.WORKERS_READY: "Workers ready",
    Step.ROUTER_READY: "Router ready",
    Step.SERVING: "Answered a request",
    Step.WORKERS_STOPPED: "Workers stopped",
    Step.ROUTER_REMOVED: "Router removed",
}


class EventKind(StrEnum):
    """Components add their own: RouterReady, RouterLost, RouterRestarted."""

    PHASE_CHANGED = "PhaseChanged"
    WORKER_STARTED = "WorkerStarted"
    WORKER_READY = "WorkerReady"
    WORKER_LOST = "WorkerLost"
    WORKER_RESTARTED = "WorkerRestarted"
    WORKER_DRAINING = "WorkerDraining"
    WORKER_REMOVED = "WorkerRemoved"
    L2_READY = "L2Ready"
    L2_LOST = "L2Lost"
    PROOF_PASSED = "ProofPassed"
    PROOF_FAILED = "ProofFailed"
    RECONCILE_FAILED = "ReconcileFailed"


class Severity(StrEnum):
    NORMAL = "normal"
    WARNING = "warning"
