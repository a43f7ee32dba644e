"""Cache tier change signals. Receivers schedule work and read state through selectors."""

from __future__ import annotations

from django.dispatch import Signal

# Sent after commit, with `tier` (its name), when a tier's readiness or address changed.
tier_changed = Signal()
