"""Reconcile pass for platforms on which it replaces workers itself, one at a time.

A serving worker starts draining only after the components reach all replacements.
"""

from __future__ import annotations

from console.provisioners.base import Observation, ReplicaState, WorkloadSpec
from console.provisioners.rollout import plan_step
from endpoints.choices import Phase
from endpoints.reconcile.base import Pass
from endpoints.reconcile.roster import Roster, may_stop


class StepwisePass(Pass):
    """One worker after the other. `held`: the next replacement waits until components reach the new
    worker.
    """

    held = False

    def _leaving(self, seen: Observation, workload: WorkloadSpec) -> frozenset[int]:
        """Return the workers that the next apply would stop. Set `held` if that must wait."""
        step = plan_step(workload.replicas, workload.spec_hash, seen.replicas)
        self.held = step.replace is not None and self._too_early(step.replace, seen)
        replaced = () if step.replace is None or self.held else (step.replace,)
        return frozenset((*step.remove, *replaced))

    def _too_early(self, index: int, seen: Observation) -> bool:
        """Return whether a component may not reach all replacements yet: its last status covers
        only workers ready at that time.
        """
        ready = {r.index for r in seen.replicas if r.state is ReplicaState.READY}
        draining = any(row.index == index and row.draining_since for row in self.known)
        if index not in ready or draining:
            return False
        before = {row.index for row in self.known if row.state == ReplicaState.READY}
        part = self.status.parts.get(self.router.name, {})
        return not (ready <= before and part.get("ready"))

    def _may_apply(self, found: Roster, workload: WorkloadSpec) -> bool:
        if self._is_applied(found, workload):
            return False
        return not self.held and may_stop(found.rows, self.statuses.values(), self.now)

    def _is_applied(self, found: Roster, workload: WorkloadSpec) -> bool:
        """Return whether an apply would change nothing: exactly the desired workers serve. Only
        where changes are announced, so that few passes depend on it.
        """
        return (
            self.provisioner.announces
            and self.status.observed_generation == self.endpoint.generation
            and self.status.phase == Phase.READY
            and not (workload.live_files or found.draining)
            and len(found.workers) == workload.replicas
            and all(
                worker.ready and worker.current and not worker.surplus for worker in found.workers
            )
        )
