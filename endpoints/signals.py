"""Signals of endpoints, sent after commit. Receivers may nudge, but not write this app's rows."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.dispatch import Signal

# Argument: name (str). Sent when workers, their addresses or their readiness change.
replicas_changed = Signal()


def send_replicas_changed(name: str) -> None:
    """Send after commit of the current transaction; errors of receivers are isolated."""
    transaction.on_commit(partial(replicas_changed.send_robust, sender=None, name=name))
