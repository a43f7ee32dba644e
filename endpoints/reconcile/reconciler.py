"""Reconcile one endpoint: claim, one pass, release.

Two passes never act on one endpoint at once. A pass is short, waits for nothing to become ready,
and may be killed at any line: its external effects are repeatable, and the database is written once
at its end, only while the claim holds.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from django.db import transaction

from console.claims import Claim, take_claim
from console.core.errors import Refused
from console.provisioners.base import Provisioner, ProvisionError
from endpoints import actions, selectors
from endpoints.choices import EventKind, Phase, Severity
from endpoints.lifecycle.components import Component
from endpoints.models import Endpoint, EndpointStatus
from endpoints.placement.provisioner import provisioner_of
from endpoints.prompt import client
from endpoints.reconcile import events
from endpoints.reconcile.base import Prove
from endpoints.reconcile.events import Occurrence
from endpoints.reconcile.removal import remove
from endpoints.reconcile.rolling_update import RollingPass
from endpoints.reconcile.router import configured_router
from endpoints.reconcile.status import PassOutcome, is_unchanged, write
from endpoints.reconcile.stepwise_update import StepwisePass
from endpoints.spec.endpoint_spec import EndpointSpec

log = logging.getLogger(__name__)

CLAIM_S = 45.0  # longer than any pass; the delay after a killed one
AFTER_CRASH_S = 15.0
# Seconds until the next pass: short during transitions, else long to limit the load.
NEXT_PASS_S = {Phase.READY: 3.0, Phase.PAUSED: 10.0, Phase.FAILED: 5.0} | dict.fromkeys(
    (Phase.DEGRADED, Phase.UNAVAILABLE), 1.5
)
UNSETTLED_S = 0.8
STEADY_S = 120.0
"""A Ready endpoint without change whose processes announce changes; bounds the delay of a lost
announcement. The last fifth is random, so that endpoints do not stay in step.
"""
UNANNOUNCED_S = 30.0
"""The same with a part whose changes nothing announces: an external Redis, fallback routing."""
STEADY_ON_CLUSTER_S = 100.0
"""The same on a cluster, where the pass also compares versions that are up to 20 s old."""
UNANNOUNCED_ON_CLUSTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Reconciler of endpoints. `provisioners` returns the provisioner of a spec; `prove(url, key,
    model)` sends one request and returns "" or the error.
    """

    provisioners: Callable[[EndpointSpec], Provisioner]
    router: Component
    prove: Prove = client.probe

    @classmethod
    def configured(cls) -> Reconciler:
        return cls(provisioner_of, configured_router())

    def reconcile(self, endpoint_id: str) -> None:
        """Run one pass unless another one holds the claim."""
        held = take_claim(EndpointStatus, endpoint_id, ttl_s=CLAIM_S)
        if held is None:
            return
        try:
            again_s = self._pass(held, endpoint_id)
        except Exception:
            # Postponed, so that one bad row cannot keep a worker busy.
            held.release(AFTER_CRASH_S)
            raise
        held.release(again_s)

    def _pass(self, held: Claim, endpoint_id: str) -> float | None:
        endpoint = selectors.endpoints().filter(pk=endpoint_id).first()
        if endpoint is None:
            return None
        provisioner = self._provisioner(endpoint)
        if endpoint.deleting:
            return remove(held, endpoint, provisioner, self.router)
        make = RollingPass if provisioner.rolls else StepwisePass
        outcome = make(provisioner, self.router, self.prove, endpoint).run()
        # The rollback and the status with its cause are written in one transaction.
        with transaction.atomic():
            if outcome.of_cluster and outcome.of_cluster.roll_back:
                actions.locked(endpoint.name)
            if not write(held, outcome):
                log.info("%s: lost the reconcile claim; discarding the result", endpoint.name)
                return None
            _roll_back(outcome)
        if provisioner.announces and is_unchanged(outcome):
            return _steady_s(endpoint.parsed, rolls=provisioner.rolls) * random.uniform(0.8, 1.0)
        return NEXT_PASS_S.get(outcome.verdict.phase, UNSETTLED_S)

    def _provisioner(self, endpoint: Endpoint) -> Provisioner:
        try:
            return self.provisioners(endpoint.parsed)
        except ProvisionError as error:
            return UnavailableProvisioner(error)


def _steady_s(spec: EndpointSpec, *, rolls: bool) -> float:
    redis = spec.cache.l2.enabled and not spec.needs_cache_tier
    if redis or spec.routing.effective_strategy == "kvaware":
        return UNANNOUNCED_ON_CLUSTER_S if rolls else UNANNOUNCED_S
    return STEADY_ON_CLUSTER_S if rolls else STEADY_S


class UnavailableProvisioner:
    """Stands for an unknown cluster: every call raises its error, which the status then shows."""

    name = "nowhere"
    rolls = True
    announces = False

    def __init__(self, error: ProvisionError) -> None:
        self.error = error

    def _refuse(self, *_args: Any, **_named: Any) -> NoReturn:
        raise self.error

    apply = observe = delete = logs = _refuse


def _roll_back(outcome: PassOutcome) -> None:
    """Roll back as the console. Skipped after a newer change or if rejected."""
    back = outcome.of_cluster.roll_back if outcome.of_cluster else None
    if back is None:
        return
    name = outcome.endpoint.name
    try:
        actions.roll_back_failed(name, back.number, expected_generation=back.failed)
    except Refused as error:
        text = f"Rollback to revision {back.number} rejected: {error}"
        occurrence = Occurrence(EventKind.ROLLBACK_REFUSED, text, severity=Severity.WARNING)
        events.write(outcome.endpoint, [occurrence], outcome.now)
