"""What the quick search finds of this room, and what it says on the Settings page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.urls import reverse

from console.clusters import selectors
from console.web.shell.cards import Card, Fact
from console.web.shell.search import EACH, Hit

SHOWN = 8


def find(_viewer: Any, text: str) -> Sequence[Hit]:
    """Clusters belong to the platform: whoever may search at all may see them."""
    rows = selectors.clusters().filter(name__icontains=text)[:EACH]
    return [
        Hit("cluster", row.name, reverse("clusters:cluster", args=[row.name]), "topology-star-3")
        for row in rows
    ]


def facts(_viewer: Any) -> Sequence[Fact]:
    rows = list(selectors.clusters()[:SHOWN])
    found = [
        Fact(row.name, str(row.status.phase), reverse("clusters:cluster", args=[row.name]))
        for row in rows
    ]
    return found or [Fact("None", "Workers run where this console does.")]


CARD = Card(
    "clusters",
    "Clusters",
    "Where endpoints and cache tiers can run.",
    20,
    facts,
    "clusters:list",
    "Clusters",
)
