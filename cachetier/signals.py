"""Our own signals: something changed, ask the selectors what. Receivers nudge, nothing else."""

from __future__ import annotations

from django.dispatch import Signal

from console.core.registry import OwnerRegistry

# Sent after commit, with `tier` (its name), when where or whether a tier serves has changed.
tier_changed = Signal()


_users = OwnerRegistry()
register = _users.register
unregister = _users.unregister
by_tier = _users.by_name
users = _users.of
