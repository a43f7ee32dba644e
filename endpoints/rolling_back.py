"""Whether a change that fails should be taken back by itself; pure.

Promises to blame a revision only for what another one would not suffer too: a cluster that is
away, a right that is missing or a field that others hold is no reason to go back. Must not know
Django or how a revision is changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from endpoints.choices import Reason
from endpoints.lifecycle.facts import CRASHES_TO_LOOP, Facts

OF_THE_REVISION = frozenset({"RefusedByCluster", "MissingCapability", "InvalidSpec"})
"""Refusals of a provisioner that the spec itself has earned."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Why the present revision has failed: a stable reason, and a sentence for people."""

    reason: str
    message: str


def blame(facts: Facts) -> Blame | None:
    """None while the change may still succeed, or where nothing served before it."""
    if facts.deleting or facts.served or not facts.served_once or not facts.wanted:
        return None
    if facts.trouble is not None:
        return _refusal(facts)
    if facts.complete and not facts.overdue:
        return None
    if facts.failed is not None:
        return Blame(facts.failed.reason, facts.failed.message)
    looping = [w for w in facts.living if w.current and w.looping]
    if looping:
        worker = looping[0]
        text = f"{worker.name} died {CRASHES_TO_LOOP} times without becoming ready."
        return Blame(Reason.WORKERS_CRASH_LOOPING, f"{text} {worker.message}".strip())
    if facts.overdue:
        why = facts.stuck.message if facts.stuck else facts.proof_error
        text = f"{facts.current_ready} of {facts.wanted} new workers were ready at the deadline."
        return Blame(Reason.DEADLINE_EXCEEDED, f"{text} {why}".strip())
    return None


def _refusal(facts: Facts) -> Blame | None:
    trouble = facts.trouble
    if trouble is None or trouble.reason not in OF_THE_REVISION:
        return None
    return Blame(trouble.reason, trouble.message)
