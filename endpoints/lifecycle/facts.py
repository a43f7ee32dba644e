"""Observed facts of one pass, the input of the phase table."""

from __future__ import annotations

from dataclasses import dataclass

from console.provisioners.base import ReplicaObservation, ReplicaState
from endpoints.choices import Stage

CRASHES_TO_LOOP = 3
"""Crashes without readiness in between that make a crash loop."""
NEEDS_ACTION = frozenset(
    {
        *("Unschedulable", "SchedulingGated", "SchedulerError"),
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
        *("OOMKilled", "Hung"),
    }
)
"""Worker reasons that describe the endpoint better than a missing worker."""


@dataclass(frozen=True, slots=True)
class ObservedWorker:
    """Observed worker of an endpoint. `current`: runs the desired spec. `surplus`: above the
    desired count. `crashes`: since it was last ready. `leaving`: terminating; a replacement is
    counted separately. `stage` and `reason`: startup progress and what blocks it, if reported.
    """

    name: str
    ready: bool
    running: bool
    current: bool
    surplus: bool = False
    crashes: int = 0
    gave_up: bool = False
    message: str = ""
    leaving: bool = False
    stage: str = ""
    reason: str = ""

    @property
    def looping(self) -> bool:
        return not self.ready and (self.gave_up or self.crashes >= CRASHES_TO_LOOP)

    @property
    def summary(self) -> str:
        revision = "" if self.current else " (previous revision)"
        reason = f"{self.reason}: " if self.reason in NEEDS_ACTION else ""
        return f"{self.name}{revision}: {reason}{self.message or 'starting'}"


@dataclass(frozen=True, slots=True)
class Impairment:
    """A component serves with limits. `reason` is a stable code, `remedy` the fix."""

    reason: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ObservedComponent:
    """A cache tier, a component such as the router, or an exposure object. `usable`: its address is
    known.
    """

    name: str
    ready: bool
    reason: str = ""
    message: str = ""
    usable: bool = True
    impairment: Impairment | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    permanent: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LifecycleFacts:
    """Input of the phase table.

    `draining`: workers without new requests, not stopped yet. `proof_error`: failure of the last
    probe through the router, "" without one. `failed`: the platform gave up on the present spec.
    `staged`: workers report stages. `exposure`: objects that expose the endpoint outside.
    `stalled`: why the platform creates no further worker. `scaled_by_drift`: somebody else set the
    number of workers.
    """

    wanted: int
    deleting: bool = False
    served: bool = False
    served_once: bool = False
    proven: bool = False
    overdue: bool = False
    cache: ObservedComponent | None = None
    workers: tuple[ObservedWorker, ...] = ()
    draining: tuple[str, ...] = ()
    components: tuple[ObservedComponent, ...] = ()
    components_left: bool = False
    observed: bool = True
    proof_error: str = ""
    trouble: Trouble | None = None
    autoscaled: bool = False
    stood: int = 0
    staged: bool = False
    failed: Trouble | None = None
    exposure: tuple[ObservedComponent, ...] = ()
    drifted: Impairment | None = None
    scaled_by_drift: bool = False
    stalled: Trouble | None = None

    @property
    def living(self) -> tuple[ObservedWorker, ...]:
        return tuple(worker for worker in self.workers if not worker.leaving)

    @property
    def ready(self) -> int:
        return sum(worker.ready for worker in self.workers)

    @property
    def current(self) -> int:
        return sum(w.current and w.running and not w.surplus for w in self.workers)

    @property
    def current_ready(self) -> int:
        return sum(w.current and w.ready and not w.surplus for w in self.workers)

    @property
    def enough(self) -> bool:
        """Return whether the desired number serves; further workers may be stopping."""
        return self.current_ready >= self.wanted

    @property
    def complete(self) -> bool:
        """Return whether exactly the desired workers serve, or more that somebody else set."""
        if self.scaled_by_drift:
            return self.enough and all(worker.current for worker in self.living)
        return self.current_ready == self.wanted == len(self.living)

    @property
    def scaling(self) -> bool:
        """Return whether an autoscaler changed the count and none of the earlier workers is
        missing.
        """
        enough = self.current_ready >= min(self.stood, self.wanted)
        return self.autoscaled and not self.complete and enough

    @property
    def hidden(self) -> ObservedComponent | None:
        return next((part for part in self.exposure if not part.ready), None)

    @property
    def stuck(self) -> ObservedWorker | None:
        """Return the worker of the desired spec that best explains the lack of progress."""
        coming = [w for w in self.living if w.current and w.reason and not w.ready]
        return next((w for w in coming if w.reason in NEEDS_ACTION), next(iter(coming), None))

    @property
    def blocked(self) -> ObservedWorker | None:
        stuck = self.stuck
        return stuck if stuck and stuck.reason in NEEDS_ACTION else None

    @property
    def absent(self) -> ObservedComponent | None:
        return next((part for part in self.components if not part.ready), None)

    @property
    def impairment(self) -> Impairment | None:
        impairments = (part.impairment for part in self.components if part.impairment)
        return next(impairments, self.drifted)

    @property
    def looping(self) -> tuple[ObservedWorker, ...]:
        return tuple(w for w in self.living if w.current and w.looping)


def count_workers(number: int) -> str:
    return f"{number} worker{'' if number == 1 else 's'}"


_ENDED_STATES = (ReplicaState.STOPPING, ReplicaState.EXITED)
_FETCHING = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ImagePulling"})
_FETCHING_TOO = frozenset({"ErrImageNeverPull", "RegistryUnavailable", "ContainerCreating"})
_PREPARING = ("Init", "PodInitializing")


def stage(seen: ReplicaObservation) -> Stage:
    if seen.state in _ENDED_STATES:
        return Stage.LEAVING
    if seen.state is ReplicaState.READY:
        return Stage.READY
    if seen.started_at or seen.restarts:
        return Stage.LOADING
    if not seen.node:
        return Stage.SCHEDULING
    if seen.reason.startswith(_PREPARING):
        return Stage.PREPARING
    if seen.reason in _FETCHING | _FETCHING_TOO:
        return Stage.PULLING
    return Stage.PREPARING if seen.state is ReplicaState.BACKOFF else Stage.PULLING
