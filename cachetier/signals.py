"""Cache tier change signals. Receivers schedule work and read state through selectors."""

from __future__ import annotations

from django.dispatch import Signal

from console.core.registry import OwnerRegistry

# Sent after commit, with `tier` (its name), when a tier's readiness or address changed.
tier_changed = Signal()


_users = OwnerRegistry()
register = _users.register
unregister = _users.unregister
by_tier = _users.by_name
users = _users.of
