"""What the quick search finds of this room: cache tiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.urls import reverse

from cachetier import selectors
from console.web.shell.search import EACH, Hit


def find(_viewer: Any, text: str) -> Sequence[Hit]:
    """Tiers belong to the platform: whoever may search at all may see them."""
    rows = selectors.tiers().filter(name__icontains=text)[:EACH]
    return [
        Hit(
            "cache tier",
            row.name,
            reverse("cachetier:tier", args=[row.name]),
            "stack-2",
            str(row.shown_phase),
        )
        for row in rows
    ]
