"""Search over names of objects, settings and pages, with finders registered by each app.

Hits are limited in number and to what the viewer may see. A failing finder is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from console.core.registry import Registry
from console.web.shell import cards, navigation
from console.web.shell.navigation import NavItem

log = logging.getLogger(__name__)
MAX_HITS = 30
MAX_HITS_PER_FINDER = 6
MAX_TEXT = 100
# Order of kinds among equally good matches; others follow.
_KINDS = ("endpoint", "tab", "worker", "key", "key group", "cache tier", "cluster", "team")
# Headings of kinds that are not the plural of their name.
_HEADINGS = {"tab": "Endpoint pages", "key": "Inference keys", "decision": "Routing decisions"}


@dataclass(frozen=True, slots=True)
class Hit:
    """Search result; `kind` is e.g. "endpoint", `icon` a symbol of the sprite."""

    kind: str
    label: str
    url: str
    icon: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HitGroup:
    title: str
    hits: Sequence[Hit]


Find = Callable[[Any, str], Sequence[Hit]]
# `find(viewer, text)` makes one or two queries.
_finders: Registry[Find] = Registry()
register_finder = _finders.register

# Pages that are not in the menu.
_pages: Registry[NavItem] = Registry(key=lambda item: item.url_name)


def register_pages(*pages: NavItem) -> None:
    for page in pages:
        _pages.register(page)


def search_all(viewer: Any, text: str) -> list[HitGroup]:
    """Return the hits by kind, best matches first: exact, then prefix, then substring."""
    query = clean_text(text).casefold()
    if not query:
        return []
    hits: list[Hit] = []
    for find in _finders:
        try:
            hits += find(viewer, clean_text(text))[:MAX_HITS_PER_FINDER]
        except Exception:
            log.exception("Search finder failed; its hits are omitted")
    groups: dict[str, list[Hit]] = {}
    for hit in sorted(hits, key=lambda hit: _rank(hit, query))[:MAX_HITS]:
        groups.setdefault(hit.kind, []).append(hit)
    return [HitGroup(heading(kind), group) for kind, group in groups.items()]


def _rank(hit: Hit, wanted: str) -> tuple[bool, bool, int]:
    label = hit.label.casefold()
    kind = _KINDS.index(hit.kind) if hit.kind in _KINDS else len(_KINDS)
    return label != wanted, not label.startswith(wanted), kind


def heading(kind: str) -> str:
    return _HEADINGS.get(kind, f"{kind.capitalize()}s")


def clean_text(text: str) -> str:
    return text.strip()[:MAX_TEXT]


def find(viewer: Any, text: str) -> Sequence[Hit]:
    """Find pages and settings by their titles."""
    query = text.casefold()
    hits = [
        Hit("page", item.label, url, item.icon, item.section)
        for item in (*navigation.list_items(), *_pages)
        if query in item.label.casefold()
        and navigation.may_open(viewer, item)
        and (url := navigation.url_of(item))
    ]
    settings = reverse("web:settings")
    hits += [
        Hit("setting", card.title, f"{settings}#card-{card.key}", "settings")
        for card in cards.visible_cards(viewer)
        if query in card.title.casefold()
    ]
    return sorted(hits, key=lambda hit: not hit.label.casefold().startswith(query))
