"""Quick search, banner and retention entries of endpoints in the shell.

"demo" finds the endpoint, "demo lo" its Logs tab, "canary" that tab of the first endpoints. Each
finder takes one or two queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Case, IntegerField, Q, Value, When
from django.db.models.fields.json import KT
from django.urls import reverse

from console.accounts.permissions import Somebody
from console.web.shell import navigation
from console.web.shell.cards import Card, Fact
from console.web.shell.context import Banner
from console.web.shell.search import MAX_HITS_PER_FINDER, Hit
from endpoints import selectors
from endpoints.keys import selectors as keys
from endpoints.models import Endpoint, InferenceKey, Replica
from endpoints.reconcile.events import EVENTS_KEPT
from endpoints.tasks import REVOKED_FOR

MIN_TAB_TEXT = 3
"""Characters from which a text without an endpoint's name finds tabs."""
TAB_ENDPOINTS = 3


def find(viewer: Any, text: str) -> Sequence[Hit]:
    first, _, second = text.rpartition(" ")
    if first.strip():
        row = next(iter(_find_by_name(viewer, first.strip())), None)
        if opened := _tabs(row, second.casefold()) if row else []:
            return opened
    endpoints = [
        Hit("endpoint", row.name, row.get_absolute_url(), "server", str(row.shown_phase))
        for row in _find_by_name(viewer, text)
    ]
    if endpoints or len(text) < MIN_TAB_TEXT:
        return endpoints
    rows = selectors.endpoints(viewer).order_by("name")[:TAB_ENDPOINTS]
    return [hit for row in rows for hit in _tabs(row, text.casefold())]


def find_workers(viewer: Any, text: str) -> Sequence[Hit]:
    visible = selectors.endpoints(viewer).order_by()
    rows = Replica.objects.filter(endpoint__in=visible, name__icontains=text)
    named = rows.order_by("name").values_list("name", "endpoint__name", "state")
    return [
        Hit("worker", name, reverse("endpoints:workers", args=[owner]), "cpu", state)
        for name, owner, state in named[:MAX_HITS_PER_FINDER]
    ]


def find_keys(viewer: Any, text: str) -> Sequence[Hit]:
    """Find inference keys by name or displayed prefix, and key groups by name."""
    named = keys.visible_keys(viewer).filter(Q(name__icontains=text) | Q(prefix__startswith=text))
    hits = [
        Hit("key", key.name, _key_page(key), "key", str(key.endpoint or key.group))
        for key in named[:MAX_HITS_PER_FINDER]
    ]
    groups = keys.groups(viewer).prefetch_related(None).filter(name__icontains=text)
    hits += [
        Hit("key group", group.name, reverse("keys:group", args=[group.pk]), "key")
        for group in groups.order_by("name")[:MAX_HITS_PER_FINDER]
    ]
    return hits


def _key_page(key: InferenceKey) -> str:
    if key.endpoint is not None:
        return reverse("endpoints:access", args=[key.endpoint.name])
    return reverse("keys:group", args=[key.group_id])


def _tabs(row: Endpoint, word: str) -> list[Hit]:
    return [
        Hit("tab", f"{row.name}: {tab['tab'].label}", tab["url"], tab["tab"].icon)
        for tab in navigation.list_tabs("endpoint", row.name, "")
        if f" {word}" in f" {tab['tab'].group} {tab['tab'].label}".casefold()
    ]


def _find_by_name(viewer: Any, text: str) -> list[Endpoint]:
    begins = Case(
        When(name__istartswith=text, then=Value(0)), default=Value(1), output_field=IntegerField()
    )
    annotated = selectors.endpoints(viewer).annotate(model_name=KT("spec__model"), begins=begins)
    named = annotated.filter(Q(name__icontains=text) | Q(model_name__icontains=text))
    return list(named.order_by("begins", "name")[:MAX_HITS_PER_FINDER])


def simulated_banner(viewer: Somebody) -> Banner | None:
    names = selectors.simulated_names(viewer)
    if not names:
        return None
    listed = ", ".join(names[:5]) + (" and more" if len(names) > 5 else "")
    return Banner(
        key="simulated",
        level="warning",
        title="Simulated workers",
        text=f"{listed}: no model is running. Responses, latencies and hit rates are simulated.",
    )


def facts(_viewer: Any) -> Sequence[Fact]:
    return (
        Fact("Events per endpoint", f"latest {EVENTS_KEPT}"),
        Fact("Revisions", "until the endpoint is deleted"),
        Fact("Names of revoked keys", f"{REVOKED_FOR.days} days"),
        Fact("Audit log", "unlimited, including deleted objects"),
    )


CARD = Card("retention", "Retention", "How long data is kept.", 50, facts)
