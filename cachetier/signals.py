"""Our own signals: something changed, ask the selectors what. Receivers nudge, nothing else."""

from __future__ import annotations

from django.dispatch import Signal

# Sent after commit, with `tier` (its name), when where or whether a tier serves has changed.
tier_changed = Signal()
