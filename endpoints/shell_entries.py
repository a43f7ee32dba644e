"""Quick search, banner and retention entries of endpoints in the shell.

"demo" finds the endpoint, "demo lo" its Logs tab. The search takes two queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Case, IntegerField, Q, Value, When
from django.db.models.fields.json import KT

from console.accounts.permissions import Somebody
from console.web.shell import navigation
from console.web.shell.cards import Card, Fact
from console.web.shell.context import Banner
from console.web.shell.search import MAX_HITS_PER_FINDER, Hit
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.reconcile.events import EVENTS_KEPT
from endpoints.tasks import REVOKED_FOR


def find(viewer: Any, text: str) -> Sequence[Hit]:
    first, _, second = text.rpartition(" ")
    if first.strip():
        opened = _tabs(viewer, first.strip(), second.casefold())
        if opened:
            return opened
    return [
        Hit("endpoint", row.name, row.get_absolute_url(), "server", str(row.shown_phase))
        for row in _find_by_name(viewer, text)
    ]


def _tabs(viewer: Any, name: str, word: str) -> list[Hit]:
    row = next(iter(_find_by_name(viewer, name)), None)
    if row is None:
        return []
    return [
        Hit("tab", f"{row.name}: {one['tab'].label}", one["url"], one["tab"].icon)
        for one in navigation.list_tabs("endpoint", row.name, "")
        if f" {word}" in f" {one['tab'].group} {one['tab'].label}".casefold()
    ]


def _find_by_name(viewer: Any, text: str) -> list[Endpoint]:
    begins = Case(
        When(name__istartswith=text, then=Value(0)), default=Value(1), output_field=IntegerField()
    )
    found = selectors.endpoints(viewer).annotate(model_name=KT("spec__model"), begins=begins)
    named = found.filter(Q(name__icontains=text) | Q(model_name__icontains=text))
    return list(named.order_by("begins", "name")[:MAX_HITS_PER_FINDER])


def simulated_banner(viewer: Somebody) -> Banner | None:
    names = selectors.simulated_names(viewer)
    if not names:
        return None
    shown = ", ".join(names[:5]) + (" and more" if len(names) > 5 else "")
    return Banner(
        key="simulated",
        level="warning",
        title="Simulated workers",
        text=f"No model computes behind {shown}: texts, times and hit rates are made up.",
    )


def facts(_viewer: Any) -> Sequence[Fact]:
    return (
        Fact("Events of an endpoint", f"the latest {EVENTS_KEPT}"),
        Fact("Revisions", "all, as long as their endpoint"),
        Fact("Revoked keys", f"their names for {REVOKED_FOR.days} days"),
        Fact("Audit trail", "all, also of what is deleted"),
    )


CARD = Card("retention", "Retention", "What is kept, and for how long.", 50, facts)
