"""What the table of phases judges: plain facts of one look, and what follows from them at once.

Must not know Django, the database, the clock or how anything is run.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.provisioners.base import ReplicaObservation, ReplicaState
from endpoints.choices import Stage

CRASHES_TO_LOOP = 3
"""Deaths of a worker without becoming ready in between, after which it is called a loop."""
NEEDS_ACTION = frozenset(
    {
        *("Unschedulable", "SchedulingGated", "SchedulerError"),
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
        *("OOMKilled", "Hung"),
    }
)
"""Reasons of a worker which name the endpoint's condition better than that a worker is missing."""


@dataclass(frozen=True, slots=True)
class ObservedWorker:
    """`current`: it runs the wanted spec. `surplus`: it is beyond the wanted number. `crashes`:
    deaths since it was last ready. `leaving`: it ends, and another one takes its place where one is
    wanted. `stage` and `reason`: how far it has come, and why not further, where somebody says."""

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
    """A part serves, but not as it was asked to. `reason` is stable, `remedy` says what to do."""

    reason: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ObservedComponent:
    """The cache tier, a component such as the router, or what makes it reachable from outside.
    `usable`: its address is known."""

    name: str
    ready: bool
    reason: str = ""
    message: str = ""
    usable: bool = True
    impairment: Impairment | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A verb of the provisioner or of a component failed in this pass."""

    permanent: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LifecycleFacts:
    """All the table knows. `draining` are workers which get nothing new and are not stopped yet;
    `proof_error` is why the last request through the router failed, "" if none was tried. `failed`:
    the platform has given up on the present spec. `staged`: workers tell their stage. `exposure`
    are the parts that make it reachable from outside. `stalled`: why the platform makes no further
    worker now."""

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
    stalled: Trouble | None = None

    @property
    def living(self) -> tuple[ObservedWorker, ...]:
        """Workers which nobody has told to end."""
        return tuple(worker for worker in self.workers if not worker.leaving)

    @property
    def ready(self) -> int:
        """Workers which serve, whatever spec they run."""
        return sum(worker.ready for worker in self.workers)

    @property
    def current(self) -> int:
        """Wanted workers which run the wanted spec, ready or not."""
        return sum(w.current and w.running and not w.surplus for w in self.workers)

    @property
    def current_ready(self) -> int:
        return sum(w.current and w.ready and not w.surplus for w in self.workers)

    @property
    def complete(self) -> bool:
        """Exactly the wanted workers, all ready with the wanted spec."""
        return self.current_ready == self.wanted == len(self.living)

    @property
    def scaling(self) -> bool:
        """An autoscaler wants another number; none of those which served is missing."""
        enough = self.current_ready >= min(self.stood, self.wanted)
        return self.autoscaled and not self.complete and enough

    @property
    def hidden(self) -> ObservedComponent | None:
        """The first part that keeps callers outside from reaching it."""
        return next((part for part in self.exposure if not part.ready), None)

    @property
    def stuck(self) -> ObservedWorker | None:
        """The worker of the wanted spec that explains best why it comes no further."""
        coming = [w for w in self.living if w.current and w.reason and not w.ready]
        return next((w for w in coming if w.reason in NEEDS_ACTION), next(iter(coming), None))

    @property
    def blocked(self) -> ObservedWorker | None:
        """The first worker of the wanted spec which does not come up without a person."""
        stuck = self.stuck
        return stuck if stuck and stuck.reason in NEEDS_ACTION else None

    @property
    def absent(self) -> ObservedComponent | None:
        """The first component that is not ready."""
        return next((part for part in self.components if not part.ready), None)

    @property
    def impairment(self) -> Impairment | None:
        """The first of a component, else what others have changed."""
        told = (part.impairment for part in self.components if part.impairment)
        return next(told, self.drifted)

    @property
    def looping(self) -> tuple[ObservedWorker, ...]:
        """Workers of the wanted spec: those of an earlier revision say nothing about this one."""
        return tuple(w for w in self.living if w.current and w.looping)


_OVER = (ReplicaState.STOPPING, ReplicaState.EXITED)
_FETCHING = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ImagePulling"})
_FETCHING_TOO = frozenset({"ErrImageNeverPull", "RegistryUnavailable", "ContainerCreating"})
_PREPARING = ("Init", "PodInitializing")


def stage(seen: ReplicaObservation) -> Stage:
    if seen.state in _OVER:
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
