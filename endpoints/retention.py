"""What this room says on the Settings page: what is kept, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.web.shell.cards import Card, Fact
from endpoints.pruning import REVOKED_FOR
from endpoints.reconcile.events import KEPT


def facts(_viewer: Any) -> Sequence[Fact]:
    return (
        Fact("Events of an endpoint", f"the latest {KEPT}"),
        Fact("Revisions", "all, as long as their endpoint"),
        Fact("Revoked keys", f"their names for {REVOKED_FOR.days} days"),
        Fact("Audit trail", "all, also of what is deleted"),
    )


CARD = Card("retention", "Retention", "What is kept, and for how long.", 50, facts)
