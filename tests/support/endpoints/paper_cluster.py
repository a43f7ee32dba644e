"""Simulated cluster: replaces workers like a Deployment and reports like one.

Each observation moves every pod one step: scheduling, pulling, loading, ready. Tests inject faults.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from console.provisioners.base import (
    ClusterEvent,
    Drift,
    Observation,
    PartCondition,
    Ref,
    ReplicaObservation,
    ReplicaState,
    TemporaryError,
    WorkloadSpec,
)

_WAY = (
    (ReplicaState.STARTING, "", "Unschedulable", 0.0),
    (ReplicaState.STARTING, "node-1", "ContainerCreating", 0.0),
    (ReplicaState.STARTING, "node-1", "", 1000.0),
    (ReplicaState.READY, "node-1", "", 1000.0),
)


@dataclass
class PaperPod:
    name: str
    spec_hash: str
    step: int = 0
    restarts: int = 0
    leaving: int = 0


@dataclass
class PaperWorkload:
    spec: WorkloadSpec
    pods: list[PaperPod] = field(default_factory=list)
    deleting: bool = False


class PaperCluster:
    """`bad` hashes never become ready, `crashing` ones crash at every observation. `held`: nothing
    is scheduled. `away`: requests fail.
    """

    name = "kubernetes"
    rolls = True
    announces = False

    def __init__(self) -> None:
        self.workloads: dict[str, PaperWorkload] = {}
        self.bad: set[str] = set()
        self.crashing: set[str] = set()
        self.given_up: set[str] = set()
        self.wanted: int | None = None
        self.held = False
        self.away = False
        self.drift: tuple[Drift, ...] = ()
        self.parts: tuple[PartCondition, ...] = ()
        self.events: tuple[ClusterEvent, ...] = ()
        self.healed: list[str] = []
        self.adopted: list[tuple[str, str]] = []
        self.applied: list[WorkloadSpec] = []
        self.followed: list[tuple[int, bool]] = []
        self.least_ready: int | None = None
        self._numbers = itertools.count()

    def apply(self, spec: WorkloadSpec) -> Ref:
        self._answer()
        found = self.workloads.setdefault(spec.name, PaperWorkload(spec))
        if found.deleting:
            raise TemporaryError("StillStopping", "It is still being deleted.")
        found.spec = spec
        self.applied.append(spec)
        self._surge(found)
        return Ref(self.name, spec.name)

    def observe(self, ref: Ref) -> Observation:
        self._answer()
        found = self.workloads.get(ref.name)
        if found is None:
            return Observation(exists=False)
        self._move(found)
        if found.deleting and not found.pods:
            del self.workloads[ref.name]
            return Observation(exists=False)
        gave_up = found.spec.spec_hash in self.given_up
        return Observation(
            exists=True,
            replicas=tuple(self._seen(i, pod) for i, pod in enumerate(found.pods)),
            message="The rollout stands still." if gave_up else "",
            wanted=self.wanted,
            failed="ProgressDeadlineExceeded" if gave_up else "",
            parts=self.parts,
            events=self.events,
            drift=self.drift,
        )

    def delete(self, ref: Ref) -> None:
        self._answer()
        if ref.name in self.workloads:
            self.workloads[ref.name].deleting = True
            self._surge(self.workloads[ref.name])

    def logs(self, ref: Ref, tail_lines: int = 200) -> Mapping[str, str]:
        self._answer()
        pods = self.workloads[ref.name].pods if ref.name in self.workloads else []
        return {pod.name: f"log of {pod.name}\n" for pod in pods}

    def heal(self, ref: Ref) -> None:
        self._answer()
        self.healed.append(ref.name)
        self.drift = ()

    def adopt(self, ref: Ref, paths: tuple[str, ...]) -> None:
        self._answer()
        self.adopted += [(ref.name, path) for path in paths]
        self.drift = tuple(d for d in self.drift if d.key not in paths)

    def follow(
        self,
        ref: Ref,
        replica: str,
        container: str,
        since: float = 0.0,
        *,
        tail: int = 100,
        stay: bool = True,
    ) -> Iterator[str]:
        self._answer()
        self.followed.append((tail, stay))
        for second in range(max(3 - tail, 0), 3):
            yield f"2026-01-01T00:00:0{second}Z {container} of {replica}: line {second}"

    def lose(self, workload: str, index: int) -> None:
        """Lose the node: the pod is replaced."""
        found = self.workloads[workload]
        del found.pods[index]
        self._surge(found)

    def _answer(self) -> None:
        if self.away:
            raise TemporaryError("ClusterUnreachable", "The API server does not answer.")

    def _count(self, found: PaperWorkload) -> int:
        if found.deleting or not found.spec.replicas:
            return 0
        scaled = [item.found for item in self.drift if item.path == ".spec.replicas"]
        if scaled:
            return int(scaled[0])
        return found.spec.replicas if self.wanted is None else self.wanted

    def _surge(self, found: PaperWorkload) -> None:
        """Start one new pod above the target at a time; stop an old one when enough are ready."""
        wanted = self._count(found)
        new = [p for p in found.pods if p.spec_hash == found.spec.spec_hash and not p.leaving]
        old = [p for p in found.pods if p.spec_hash != found.spec.spec_hash and not p.leaving]
        for pod in new[wanted:] if wanted else [*new, *old]:
            pod.leaving = 1
        while len(new) < wanted and len(new) + len(old) < wanted + 1:
            name = f"{found.spec.name}-{found.spec.spec_hash[:5]}-{next(self._numbers)}"
            new.append(PaperPod(name, found.spec.spec_hash))
            found.pods.append(new[-1])
        ready = [p for p in (*new, *old) if self._ready(p)]
        for pod in old:
            if not self._ready(pod) or len(ready) > wanted:
                pod.leaving = 1
                ready = [p for p in ready if p is not pod]

    def _move(self, found: PaperWorkload) -> None:
        for pod in list(found.pods):
            if pod.leaving:
                pod.leaving += 1
                if pod.leaving > 3:
                    found.pods.remove(pod)
            elif pod.spec_hash in self.crashing:
                pod.step, pod.restarts = 2, pod.restarts + 1
            elif not self.held and pod.step < self._last(pod):
                pod.step += 1
        self._surge(found)
        ready = sum(self._ready(p) for p in found.pods)
        if self.least_ready is not None and ready < self.least_ready:
            raise AssertionError(f"only {ready} ready")

    def _last(self, pod: PaperPod) -> int:
        return 2 if pod.spec_hash in self.bad | self.crashing else len(_WAY) - 1

    def _ready(self, pod: PaperPod) -> bool:
        return pod.step == len(_WAY) - 1 and not pod.leaving

    def _seen(self, index: int, pod: PaperPod) -> ReplicaObservation:
        state, node, reason, started_at = _WAY[pod.step]
        if pod.spec_hash in self.crashing:
            state, reason = ReplicaState.BACKOFF, "CrashLoopBackOff"
        seen = ReplicaObservation(
            name=pod.name,
            index=index,
            state=ReplicaState.STOPPING if pod.leaving else state,
            spec_hash=pod.spec_hash,
            urls={"http": f"http://{pod.name}:8000"},
            started_at=started_at,
            restarts=pod.restarts,
            node=node,
            reason="" if pod.leaving else reason,
            containers=("worker", "fetch"),
        )
        return replace(seen, message="0/3 nodes have a GPU." if not node else "")
