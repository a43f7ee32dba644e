"""Enumerations of endpoint states with their labels. Colours are defined in the templates."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    UPDATING = "Updating"
    READY = "Ready"
    DEGRADED = "Degraded"
    UNAVAILABLE = "Unavailable"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    DELETING = "Deleting"
    FAILED = "Failed"


SETTLED = frozenset({Phase.READY, Phase.PAUSED})
"""Stable phases, polled less often by pages."""


class PhaseReason(StrEnum):
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
    SCALING = "Scaling"
    SCALED_TO_ZERO = "ScaledToZero"
    DRIFTED = "Drifted"
    PODS_UNREACHABLE = "PodsUnreachable"
    SPEC_REFUSED = "SpecRefused"
    EXPOSURE_UNAVAILABLE = "ExposureUnavailable"
    ROUTER_PORT_TAKEN = "RouterPortTaken"
    REMOVING_ROUTER = "RemovingRouter"
    STOPPING_WORKERS = "StoppingWorkers"


class ProgressState(StrEnum):
    WAITING = "waiting"
    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"


class ProgressStep(StrEnum):
    ACCEPTED = "Accepted"
    CACHE_TIER = "CacheTier"
    WORKERS_STARTED = "WorkersStarted"
    SCHEDULED = "Scheduled"
    IMAGE_PULLED = "ImagePulled"
    PREPARED = "Prepared"
    LOADED = "Loaded"
    WORKERS_READY = "WorkersReady"
    ROUTER_READY = "RouterReady"
    ROUTE_READY = "RouteReady"
    CERTIFICATE_READY = "CertificateReady"
    SERVING = "Serving"
    WORKERS_STOPPED = "WorkersStopped"
    ROUTER_REMOVED = "RouterRemoved"


STEP_LABELS = {
    ProgressStep.ACCEPTED: "Accepted",
    ProgressStep.CACHE_TIER: "Cache tier ready",
    ProgressStep.WORKERS_STARTED: "Workers started",
    ProgressStep.SCHEDULED: "Placed on nodes",
    ProgressStep.IMAGE_PULLED: "Image pulled",
    ProgressStep.PREPARED: "Weights fetched",
    ProgressStep.LOADED: "Model loaded",
    ProgressStep.WORKERS_READY: "Workers ready",
    ProgressStep.ROUTER_READY: "Router ready",
    ProgressStep.ROUTE_READY: "Route ready",
    ProgressStep.CERTIFICATE_READY: "Certificate ready",
    ProgressStep.SERVING: "Test request answered",
    ProgressStep.WORKERS_STOPPED: "Workers stopped",
    ProgressStep.ROUTER_REMOVED: "Router removed",
}


class Stage(StrEnum):
    """Startup stage of a worker on a cluster, in order."""

    SCHEDULING = "scheduling"
    PULLING = "pulling"
    PREPARING = "preparing"
    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"


AUTO_ROLLBACK = "auto-rollback"
"""Verb of an automatic rollback."""


class DriftVerb(StrEnum):
    HEAL = "heal"
    ADOPT = "adopt"


class Origin(StrEnum):
    CONSOLE = "console"
    CLUSTER = "cluster"


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
    ROLLED_BACK = "RolledBack"
    ROLLBACK_REFUSED = "RollbackRefused"
    DRIFT_FOUND = "DriftFound"
    DRIFT_ENDED = "DriftEnded"
    DRIFT_HEALED = "DriftHealed"
    DRIFT_ADOPTED = "DriftAdopted"
    DRIFT_NOT_ADOPTED = "DriftNotAdopted"


class Severity(StrEnum):
    NORMAL = "normal"
    WARNING = "warning"
