"""Reconcile pass for platforms that replace workers themselves.

Surge and termination of workers are left to the platform. Adds cluster state, drift orders and
automatic rollback. An unchanged, fully ready apply is repeated only every `AGAIN_S`, since it
writes a dozen objects; anything else is applied in every pass.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import timedelta

from console.provisioners.base import (
    Observation,
    ProvisionError,
    Ref,
    ReplicaState,
    RollingProvisioner,
    WorkloadSpec,
    asdict_plain,
)
from endpoints import selectors
from endpoints.choices import AUTO_ROLLBACK, DriftVerb, Phase, PhaseReason
from endpoints.lifecycle.components import ComponentStatus
from endpoints.lifecycle.facts import LifecycleFacts, ObservedComponent, Trouble
from endpoints.lifecycle.remedies import find_blame
from endpoints.models import DriftOrder
from endpoints.owners import owner_of
from endpoints.reconcile.base import Pass
from endpoints.reconcile.cluster_status import ClusterSurroundings, collect_surroundings
from endpoints.reconcile.roster import Roster
from endpoints.reconcile.status import ClusterOutcome, PassOutcome, RollBack

AGAIN_S = 30
ROUTER_SILENT = "RouterSilent"


class RollingPass(Pass):
    applied = ""
    carried_out: tuple[DriftOrder, ...] = ()
    overruled: tuple[DriftOrder, ...] = ()

    def run(self) -> PassOutcome:
        orders = list(selectors.drift_orders(self.endpoint))
        self.overruled = self._overruled(orders)
        self.carried_out = tuple(
            order for order in orders if order not in self.overruled and self._carry_out(order)
        )
        return super().run()

    def _overruled(self, orders: list[DriftOrder]) -> tuple[DriftOrder, ...]:
        """Return adoptions ordered before a cluster object became the owner."""
        adoptions = tuple(order for order in orders if order.verb == DriftVerb.ADOPT)
        return adoptions if adoptions and owner_of(self.endpoint.name) is not None else ()

    def _carry_out(self, order: DriftOrder) -> bool:
        """Return False if the cluster rejected it; retried in the next pass."""
        provisioner, ref = self.provisioner, Ref(self.provisioner.name, order.workload)
        if not isinstance(provisioner, RollingProvisioner):
            return True
        try:
            if order.verb == DriftVerb.ADOPT:
                provisioner.adopt(ref, (order.key,))
            else:
                provisioner.heal(ref)
        except ProvisionError as error:
            self._note(error)
            return False
        return True

    def _leaving(self, _seen: Observation, _workload: WorkloadSpec) -> frozenset[int]:
        return frozenset()

    def _may_apply(self, found: Roster, workload: WorkloadSpec) -> bool:
        """Return False shortly after an apply while everything is ready as applied."""
        status, mark = self.status, _workload_hash(workload)
        applied_at = status.applied_at
        recent = applied_at is not None and self.now - applied_at < timedelta(seconds=AGAIN_S)
        settled = status.phase in (Phase.READY, Phase.PAUSED) and not self.carried_out
        living = [worker for worker in found.workers if not worker.leaving]
        stand = len(living) == self._wanted() and all(w.ready and w.current for w in living)
        return not (recent and settled and stand and status.applied == mark)

    def _apply(self, workload: WorkloadSpec) -> Observation | None:
        observation = super()._apply(workload)
        if self.trouble is None:
            self.applied = _workload_hash(workload)
        return observation

    def _wanted(self) -> int:
        """Return the autoscaler's count if there is one; paused endpoints are not scaled."""
        replica_count = self.seen.wanted if self.seen else self.status.wanted_replicas
        return (
            self.spec.replicas if replica_count is None or not self.spec.replicas else replica_count
        )

    @property
    def _autoscaled(self) -> bool:
        return (
            bool(self.spec.replicas)
            and (self.seen.wanted if self.seen else self.status.wanted_replicas) is not None
        )

    def _reconcile_router(self, found: Roster) -> None:
        super()._reconcile_router(found)
        for name, status in self.statuses.items():
            self.statuses[name] = _with_route_error(name, status)

    def _facts(
        self, found: Roster, cache: ObservedComponent | None, *, observed: bool
    ) -> LifecycleFacts:
        inputs = super()._facts(found, cache, observed=observed)
        around = self._around()
        observation = self.seen
        gave_up = observation is not None and bool(observation.failed)
        return replace(
            inputs,
            wanted=self._wanted(),
            autoscaled=self._autoscaled,
            stood=self.status.stood_replicas,
            staged=True,
            failed=Trouble(True, observation.failed, observation.message)
            if observation and gave_up
            else None,
            stalled=_stall_trouble(observation),
            exposure=around.exposure,
            drifted=around.drifted,
            scaled_by_drift=around.scaled_by_drift,
        )

    def _around(self) -> ClusterSurroundings:
        """Return the cluster state; workloads that could not be observed keep their known drift."""
        others = [(p.workload, p.seen) for p in self.statuses.values() if p.workload and p.seen]
        own = (self.ref.name, self.seen) if self.seen is not None else None
        every = [*([own] if own else []), *others]
        around = collect_surroundings(every, self.ref.name)
        observed = {name for name, _ in every}
        rows = [row for row in self.status.drift if row["workload"] not in observed]
        return replace(around, drift=[*around.drift, *rows])

    def _cluster_outcome(self, facts: LifecycleFacts) -> ClusterOutcome:
        url = next((p.seen.url for p in self.statuses.values() if p.seen and p.seen.url), "")
        return ClusterOutcome(
            around=self._around(),
            wanted=facts.wanted if facts.autoscaled else None,
            stood=_standing_count(facts),
            public_url=url or (self.seen.url if self.seen else ""),
            applied=self.applied,
            carried_out=self.carried_out,
            overruled=self.overruled,
            roll_back=self._roll_back(facts),
        )

    def _roll_back(self, facts: LifecycleFacts) -> RollBack | None:
        """Return a rollback to the last revision that served, unless this is one."""
        blamed = find_blame(facts) if self.spec.rollout.auto_rollback else None
        if blamed is None:
            return None
        present = selectors.revision(self.endpoint, self.endpoint.generation)
        served = selectors.revision(self.endpoint, self.status.served_generation)
        if present is None or present.verb == AUTO_ROLLBACK or served is None:
            return None
        if served.spec == self.endpoint.spec or not served.spec["replicas"]:
            return None
        return RollBack(failed=present.number, number=served.number, blame=blamed)


def _stall_trouble(seen: Observation | None) -> Trouble | None:
    """Return the quota or admission error that blocks further workers."""
    parts = seen.parts if seen is not None and not seen.failed else ()
    held = next((p for p in parts if p.part == "rollout" and p.ready is False), None)
    return Trouble(False, held.reason, held.message) if held else None


def _workload_hash(workload: WorkloadSpec) -> str:
    """Hash everything applied, including what restarts nothing."""
    text = json.dumps(asdict_plain(workload), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _standing_count(facts: LifecycleFacts) -> int:
    """Return the serving count when last complete, at most the present demand."""
    if facts.complete:
        return facts.wanted
    return min(facts.stood, facts.wanted)


def _with_route_error(name: str, status: ComponentStatus) -> ComponentStatus:
    """Report a missing route to pods if only the cluster's probe succeeds."""
    stands = status.seen is not None and any(
        replica.state is ReplicaState.READY for replica in status.seen.replicas
    )
    if status.ready or status.reason != ROUTER_SILENT or not stands:
        return status
    text = (
        f"The {name} is ready according to the cluster, but unreachable from the console at "
        f"{status.admin_url or status.url}: {status.message}"
    )
    return replace(status, reason=str(PhaseReason.PODS_UNREACHABLE), message=text)
