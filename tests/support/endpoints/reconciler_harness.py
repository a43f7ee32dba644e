"""Simulated environment of reconcile tests: workers, router, and a prover that can fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.utils import timezone

from console.provisioners.base import (
    Observation,
    Provisioner,
    Ref,
    RollingProvisioner,
    WorkloadSpec,
)
from console.provisioners.fake import FakeProvisioner
from endpoints.lifecycle.components import ComponentStatus, EndpointFacts, WorkerFacts
from endpoints.lifecycle.facts import Impairment
from endpoints.models import Endpoint, EndpointStatus
from endpoints.reconcile.reconciler import Reconciler


@dataclass
class PaperRouter:
    """Simulated router component; tests set `in_flight`, `down` and `impairment`."""

    name: str = "router"
    down: str = ""
    in_flight: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[WorkerFacts, ...]] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    restarts: int = 0
    lingers: int = 0
    impairment: Impairment | None = None

    def reconcile(
        self, endpoint: EndpointFacts, workers: tuple[WorkerFacts, ...]
    ) -> ComponentStatus:
        self.calls.append(workers)
        self.running.add(endpoint.name)
        if self.down:
            return ComponentStatus(False, "RouterSilent", self.down)
        facts = {
            "workers": {
                w.name: {
                    "state": "draining" if w.draining else "up",
                    "in_flight": self.in_flight.get(w.name, 0),
                }
                for w in workers
            },
            "started_at": 1000.0,
            "restarts": self.restarts,
        }
        return ComponentStatus(
            True, "", "", "http://router", "http://admin", facts, self.impairment
        )

    def delete(self, endpoint: EndpointFacts) -> bool:
        if self.lingers:
            self.lingers -= 1
            return False
        self.running.discard(endpoint.name)
        return True

    @property
    def draining(self) -> set[str]:
        """Return the workers marked as draining in the last call."""
        return {worker.name for worker in self.calls[-1] if worker.draining}


class Recording:
    """Provisioner that records calls and can fail at a verb."""

    def __init__(self, inner: Provisioner) -> None:
        self.inner = inner
        self.name = inner.name
        self.rolls = inner.rolls
        self.announces = inner.announces
        self.applied: list[WorkloadSpec] = []
        self.breaks: dict[str, BaseException] = {}
        self.log_text = ""
        if isinstance(inner, RollingProvisioner):
            self.heal, self.adopt, self.follow = inner.heal, inner.adopt, inner.follow

    def apply(self, spec: WorkloadSpec) -> Ref:
        self._break("apply")
        ref = self.inner.apply(spec)
        self.applied.append(spec)
        self._break("applied")
        return ref

    def observe(self, ref: Ref) -> Observation:
        self._break("observe")
        return self.inner.observe(ref)

    def delete(self, ref: Ref) -> None:
        self._break("delete")
        self.inner.delete(ref)

    def logs(self, ref: Ref, tail_lines: int = 200) -> Mapping[str, str]:
        if self.log_text:
            return dict.fromkeys(self.inner.logs(ref, tail_lines), self.log_text)
        return self.inner.logs(ref, tail_lines)

    def _break(self, verb: str) -> None:
        if verb in self.breaks:
            raise self.breaks[verb]


class ReconcilerHarness:
    def __init__(self, inner: Provisioner | None = None) -> None:
        self.paper = FakeProvisioner()
        self.provisioner = Recording(inner or self.paper)
        self.router = PaperRouter()
        self.proofs: list[tuple[str, str, str]] = []
        self.proof_error = ""

    def prove(self, url: str, key: str, model: str) -> str:
        self.proofs.append((url, key, model))
        return self.proof_error

    @property
    def reconciler(self) -> Reconciler:
        return Reconciler(lambda _spec: self.provisioner, self.router, self.prove)

    def step(self, endpoint: Endpoint) -> EndpointStatus | None:
        """Run one pass; return the status, None if the endpoint is gone."""
        self.reconciler.reconcile(str(endpoint.pk))
        return EndpointStatus.objects.filter(pk=endpoint.pk).first()

    def until(self, endpoint: Endpoint, phase: str, passes: int = 12) -> EndpointStatus:
        """Run passes until the current generation reaches the phase."""
        seen = []
        for _ in range(passes):
            status = self.step(endpoint)
            assert status is not None
            seen.append(f"{status.phase}/{status.reason}")
            generation = Endpoint.objects.get(pk=endpoint.pk).generation
            if status.phase == phase and status.observed_generation == generation:
                return status
        raise AssertionError(f"not {phase} in {passes} passes: {seen}")

    def gone(self, endpoint: Endpoint, passes: int = 12) -> None:
        for _ in range(passes):
            if self.step(endpoint) is None:
                return
        raise AssertionError("still there")

    def observe(self, name: str = "demo-worker") -> Observation:
        """Observe without advancing the simulation."""
        from console.provisioners.fake import _observe

        with self.paper._state() as state:
            workload = state.workloads.get(name)
            if workload is None:
                return Observation(exists=False)
            return Observation(True, _observe(name, workload))


def age(status: EndpointStatus, **fields: Any) -> None:
    """Move each field back by the given seconds."""
    now = timezone.now()
    moved = {name: now - timedelta(seconds=seconds) for name, seconds in fields.items()}
    EndpointStatus.objects.filter(pk=status.pk).update(**moved)


def kinds(endpoint: Endpoint) -> list[str]:
    """Return the event kinds, oldest first."""
    return [event.kind for event in endpoint.events.order_by("first_at", "id")]


def states(status: EndpointStatus) -> dict[str, str]:
    return {step["code"]: step["state"] for step in status.steps}
