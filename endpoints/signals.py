"""What this room tells others, after commit. Receivers may nudge; they never write its facts."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.dispatch import Signal

# Arguments: name (str). The set of workers, their addresses or their readiness changed.
replicas_changed = Signal()


def send_replicas_changed(name: str) -> None:
    """Tell it once the current transaction is committed; a failing receiver stops nobody."""
    transaction.on_commit(partial(replicas_changed.send_robust, sender=None, name=name))
