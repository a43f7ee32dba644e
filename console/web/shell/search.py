"""Quick search over names of objects and pages, with finders registered by each app.

Hits are limited in number and to what the viewer may see. A failing finder is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from console.accounts.permissions import allows, allows_in_any_team
from console.core.registry import Registry
from console.web.shell import navigation

log = logging.getLogger(__name__)
MAX_HITS = 12
MAX_HITS_PER_FINDER = 6
MAX_TEXT = 100


@dataclass(frozen=True, slots=True)
class Hit:
    """Search result; `kind` is e.g. "endpoint", `icon` a symbol of the sprite."""

    kind: str
    label: str
    url: str
    icon: str
    detail: str = ""


Find = Callable[[Any, str], Sequence[Hit]]
# `find(viewer, text)` makes one or two queries.
_finders: Registry[Find] = Registry()
register_finder = _finders.register


def search_all(viewer: Any, text: str) -> list[Hit]:
    """Return the hits: prefix matches first, then substring matches."""
    wanted = clean_text(text)
    if not wanted:
        return []
    hits: list[Hit] = []
    for find in _finders:
        try:
            hits += find(viewer, wanted)[:MAX_HITS_PER_FINDER]
        except Exception:
            log.exception("Search finder failed; its hits are omitted")
    ranked = sorted(hits, key=lambda hit: not hit.label.casefold().startswith(wanted.casefold()))
    return ranked[:MAX_HITS]


def clean_text(text: str) -> str:
    return text.replace("\0", "").strip()[:MAX_TEXT]


def find(viewer: Any, text: str) -> Sequence[Hit]:
    search_all = []
    for item in navigation.list_items():
        may = (allows_in_any_team if item.role == "viewer" else allows)(viewer, item.role)
        url = navigation.url_of(item)
        if may and url and text.casefold() in item.label.casefold():
            search_all.append(Hit("page", item.label, url, item.icon))
    return search_all
