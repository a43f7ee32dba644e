"""Chases what is wanted of one endpoint: claim, one pass, release.

Promises that two passes never act on one endpoint at once; that a pass is short and never waits
for anything to become ready; and that it may die at any line: whatever it did outside the database
can be done again, and the database is written once, at its end, only while the claim still holds.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django.conf import settings

from console.provisioners import registry
from console.provisioners.base import Provisioner
from console.reconcile import Claim, claim
from endpoints import prompting, selectors
from endpoints.choices import Phase
from endpoints.components import Component, all_components
from endpoints.models import EndpointStatus
from endpoints.one_pass import Pass, Prove
from endpoints.removal import remove
from endpoints.status import write

log = logging.getLogger(__name__)

CLAIM_S = 45.0  # longer than any pass; what a killed one costs
AFTER_CRASH_S = 15.0
# Seconds until the next look: short while something is expected, long enough not to be a load.
LOOK_AGAIN_S = {
    Phase.READY: 3.0,
    Phase.PAUSED: 10.0,
    Phase.FAILED: 5.0,
    Phase.DEGRADED: 1.5,
}
UNSETTLED_S = 0.8


@dataclass(frozen=True, slots=True)
class Reconciler:
    """`prove(url, key, model)` sends one request: "" when it was answered, else why not."""

    provisioner: Provisioner
    components: tuple[Component, ...] = ()
    prove: Prove = prompting.prove

    @classmethod
    def configured(cls) -> Reconciler:
        emberline = settings.EMBERLINE
        provisioner = registry.get(emberline.provisioner, emberline.var)
        return cls(provisioner, all_components())

    def reconcile(self, endpoint_id: str) -> None:
        """One pass, unless somebody else makes one now."""
        held = claim(EndpointStatus, endpoint_id, ttl_s=CLAIM_S)
        if held is None:
            return
        try:
            again_s = self._pass(held, endpoint_id)
        except Exception:
            # Pushed into the future, so that one bad row cannot keep a worker busy.
            held.release(AFTER_CRASH_S)
            raise
        held.release(again_s)

    def _pass(self, held: Claim, endpoint_id: str) -> float | None:
        endpoint = selectors.endpoints().filter(pk=endpoint_id).first()
        if endpoint is None:
            return None
        if endpoint.deleting:
            return remove(held, endpoint, self.provisioner, self.components)
        outcome = Pass(self.provisioner, self.components, self.prove, endpoint).run()
        if not write(held, outcome):
            log.info("%s: the claim was lost, nothing is written", endpoint.name)
            return None
        return LOOK_AGAIN_S.get(outcome.verdict.phase, UNSETTLED_S)
