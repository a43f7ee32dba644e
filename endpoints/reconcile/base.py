"""One reconcile pass over an endpoint: observe, then take the next step.

Always returns a PassOutcome and writes no rows. Everything observable is observed anew; only marks
(served, proven, times) come from the status. Workers to be stopped are first given to the
components as `draining`, and stopped in a later pass, once nothing is in flight or their deadline
has passed. `phases.decide` alone sets the phase. Who replaces workers is in the subclasses:
this pass, one at a time (`stepwise_update`), or the platform (`rolling_update`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from django.utils import timezone

from console.provisioners.base import (
    Observation,
    PermanentError,
    Provisioner,
    ProvisionError,
    Ref,
    TemporaryError,
    WorkloadSpec,
)
from endpoints import selectors, teams
from endpoints.choices import EventKind, Phase, PhaseReason, Severity
from endpoints.keys import storage
from endpoints.lifecycle.components import Component, ComponentStatus, EndpointFacts
from endpoints.lifecycle.facts import LifecycleFacts, ObservedComponent, Trouble
from endpoints.lifecycle.phases import decide
from endpoints.lifecycle.steps import build_steps
from endpoints.models import Endpoint
from endpoints.placement.installation import installation
from endpoints.reconcile import l2_status
from endpoints.reconcile.events import Occurrence
from endpoints.reconcile.roster import Roster, WorkerDemand, compare_workers, worker_facts
from endpoints.reconcile.status import ClusterOutcome, PassOutcome, proof_mark
from endpoints.spec.rules import standing_errors
from endpoints.workload.worker_spec import worker_spec, workload_name

LOG_LINES = 15

Prove = Callable[[str, str, str], str]


class Pass:
    """Steps that all platforms share."""

    def __init__(
        self, provisioner: Provisioner, router: Component, prove: Prove, endpoint: Endpoint
    ) -> None:
        self.provisioner = provisioner
        self.router = router
        self.prove = prove
        self.endpoint = endpoint
        self.spec = endpoint.parsed
        self.status = endpoint.status
        self.ref = Ref(provisioner.name, workload_name(endpoint.name))
        self.now = timezone.now()
        self.known = list(selectors.workers(endpoint))
        self.compared = False
        self.seen: Observation | None = None
        self.statuses: dict[str, ComponentStatus] = {}
        self.trouble: Trouble | None = None
        self.happenings: list[Occurrence] = []

    def run(self) -> PassOutcome:
        l2 = l2_status.check_l2(self.spec)
        workload = self._workload(l2)
        self.seen = observation = self._observe()
        roster = self._roster(observation, workload)
        self._reconcile_router(roster)
        if workload is not None and observation is not None and self._may_apply(roster, workload):
            self.seen = observation = self._apply(workload) or observation
            roster = self._roster(observation, workload)
        inputs = self._facts(roster, l2.part, observed=observation is not None)
        mark = self._provable(inputs, roster)
        error = self._send_proof() if mark and mark != self.status.proven else ""
        return self._outcome(inputs, roster, l2.part, workload, "" if error else mark, error)

    def _workload(self, l2: l2_status.L2Check) -> WorkloadSpec | None:
        """Return None while the L2 address is unknown: a worker started now would lack it."""
        if l2.part is not None and l2.access is None:
            return None
        if self._refused():
            return None
        return worker_spec(self.spec, installation(self.spec), l2.access)

    def _refused(self) -> bool:
        """Return whether a rule checked at each apply rejects the spec. Workers may still be
        stopped; running ones are kept.
        """
        errors = standing_errors(self.spec, teams.apply_context(self.endpoint))
        if not errors or not self.spec.replicas:
            return False
        text = " ".join(f"{error.field}: {error.message} {error.remedy}" for error in errors)
        self.trouble = Trouble(True, PhaseReason.SPEC_REFUSED, text)
        return True

    def _observe(self) -> Observation | None:
        """Return None if nothing could be observed; `trouble` has the cause."""
        try:
            return self.provisioner.observe(self.ref)
        except ProvisionError as error:
            self._note(error)
            return None

    def _apply(self, workload: WorkloadSpec) -> Observation | None:
        try:
            self.provisioner.apply(workload)
        except ProvisionError as error:
            self._note(error)
            return None
        return self._observe()

    def _note(self, error: ProvisionError) -> None:
        permanent = isinstance(error, PermanentError)
        self.trouble = Trouble(permanent, error.reason, error.message)

    def _roster(self, seen: Observation | None, workload: WorkloadSpec | None) -> Roster:
        if seen is None:
            return Roster(rows=self.known)
        if self.compared:  # rows are modified in place and compared with the stored ones
            self.known = list(selectors.workers(self.endpoint))
        self.compared = True
        demand = WorkerDemand(
            endpoint=self.endpoint,
            replicas=self.spec.replicas,
            spec_hash=workload.spec_hash if workload else self.status.worker_hash,
            simulated=self.spec.simulated,
            leaving=self._leaving(seen, workload) if workload else frozenset(),
            now=self.now,
            rolls=self.provisioner.rolls,
        )
        return compare_workers(self.known, seen.replicas, demand)

    def _leaving(self, seen: Observation, workload: WorkloadSpec) -> frozenset[int]:
        """Return the workers that the next apply would stop."""
        raise NotImplementedError

    def _may_apply(self, found: Roster, workload: WorkloadSpec) -> bool:
        raise NotImplementedError

    def _reconcile_router(self, found: Roster) -> None:
        try:
            endpoint = self._endpoint_facts()
        except ProvisionError as error:  # unknown cluster
            self._note(error)
            self.statuses = {self.router.name: ComponentStatus(False, error.reason, error.message)}
            return
        workers = worker_facts(found.rows)
        try:
            status = self.router.reconcile(endpoint, workers)
        except ProvisionError as error:
            if isinstance(error, PermanentError):
                self._note(error)
            status = ComponentStatus(ready=False, reason=error.reason, message=error.message)
        self.statuses[self.router.name] = status

    def _endpoint_facts(self) -> EndpointFacts:
        """Return the endpoint's facts; renew the console's own key if its file is lost, since
        probes need it.
        """
        clear = storage.read_console_key(self.endpoint.name)
        endpoint_facts = selectors.facts(self.endpoint)
        stored = {key.sha256 for key in endpoint_facts.keys if key.id == storage.CONSOLE}
        if clear and storage.hash_key(clear) in stored:
            return endpoint_facts
        storage.renew_console_key(self.endpoint)
        return selectors.facts(self.endpoint)

    def _facts(
        self, found: Roster, cache: ObservedComponent | None, *, observed: bool
    ) -> LifecycleFacts:
        status = self.status
        generation = self.endpoint.generation
        fresh = status.clock_generation != generation
        begun = self.now if fresh else status.generation_seen_at
        return LifecycleFacts(
            wanted=self.spec.replicas,
            served=status.served_generation == generation,
            served_once=status.served_once,
            overdue=self.now - begun > timedelta(seconds=self.spec.rollout.deadline_s),
            cache=cache,
            workers=tuple(found.workers),
            draining=found.draining,
            components=tuple(
                ObservedComponent(
                    name, part.ready, part.reason, part.message, impairment=part.impairment
                )
                for name, part in self.statuses.items()
            ),
            observed=observed,
            trouble=self.trouble,
        )

    def _provable(self, facts: LifecycleFacts, found: Roster) -> str:
        """Return the mark of a probe now, "" if none is due."""
        stands = facts.observed and facts.complete and facts.absent is None and not facts.hidden
        if not stands or not facts.wanted or facts.trouble is not None:
            return ""
        return proof_mark(self.endpoint.generation, found.rows, self.statuses)

    def _send_proof(self) -> str:
        parts = self.statuses.values()
        url = next((part.ask_url for part in parts if part.ask_url), self._url())
        if not url:
            return "No router is configured: there is no address for requests."
        key = storage.read_console_key(self.endpoint.name)
        return self.prove(url, key, self.endpoint.name)

    def _url(self) -> str:
        return next((part.url for part in self.statuses.values() if part.url), "")

    def _outcome(
        self,
        facts: LifecycleFacts,
        found: Roster,
        cache: ObservedComponent | None,
        workload: WorkloadSpec | None,
        proven: str,
        error: str,
    ) -> PassOutcome:
        judged = replace(
            facts,
            served=facts.served or bool(proven),
            served_once=facts.served_once or bool(proven),
            proven=bool(proven),
            proof_error=error,
        )
        verdict = decide(judged)
        if self.trouble is not None:
            self.happenings.append(
                Occurrence(
                    EventKind.RECONCILE_FAILED,
                    f"{self.trouble.reason}: {self.trouble.message}",
                    severity=Severity.WARNING,
                )
            )
        return PassOutcome(
            endpoint=self.endpoint,
            now=self.now,
            facts=judged,
            verdict=verdict,
            steps=build_steps(judged, verdict.phase),
            roster=found,
            statuses=self.statuses,
            cache=cache,
            worker_hash=workload.spec_hash if workload else self.status.worker_hash,
            proven=proven,
            url=self._url(),
            detail=self._logs(judged) if verdict.phase is Phase.FAILED else "",
            happenings=self.happenings,
            of_cluster=self._cluster_outcome(judged),
        )

    def _cluster_outcome(self, _facts: LifecycleFacts) -> ClusterOutcome | None:
        return None

    def _logs(self, facts: LifecycleFacts) -> str:
        coming = sorted((w for w in facts.workers if not w.ready), key=lambda w: not w.current)
        bad = [*facts.looping, *coming]
        if not bad:
            return ""
        try:
            logs = self.provisioner.logs(self.ref, LOG_LINES)
        except (TemporaryError, PermanentError):
            return ""
        return logs.get(bad[0].name, "")[-4000:]
