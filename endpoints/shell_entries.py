"""What the quick search finds of this room: endpoints, and with a second word one of their tabs.

"demo" is the endpoint, "demo lo" its logs. Promises two queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Case, IntegerField, Q, Value, When
from django.db.models.fields.json import KT

from console.web import tabs
from console.web.shell.search import EACH, Hit
from endpoints import selectors
from endpoints.models import Endpoint


def find(viewer: Any, text: str) -> Sequence[Hit]:
    first, _, second = text.rpartition(" ")
    if first.strip():
        opened = _tabs(viewer, first.strip(), second.casefold())
        if opened:
            return opened
    return [
        Hit("endpoint", row.name, row.get_absolute_url(), "server", str(row.shown_phase))
        for row in _named(viewer, text)
    ]


def _tabs(viewer: Any, name: str, word: str) -> list[Hit]:
    row = next(iter(_named(viewer, name)), None)
    if row is None:
        return []
    return [
        Hit("tab", f"{row.name}: {one['tab'].label}", one["url"], one["tab"].icon)
        for one in tabs.of("endpoint", row.name, "")
        if one["tab"].label.casefold().startswith(word)
    ]


def _named(viewer: Any, text: str) -> list[Endpoint]:
    """Those whose name begins so first."""
    begins = Case(
        When(name__istartswith=text, then=Value(0)), default=Value(1), output_field=IntegerField()
    )
    found = selectors.endpoints(viewer).annotate(model_name=KT("spec__model"), begins=begins)
    named = found.filter(Q(name__icontains=text) | Q(model_name__icontains=text))
    return list(named.order_by("begins", "name")[:EACH])
