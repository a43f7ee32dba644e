"""Quick search over names of objects and pages, with finders registered by each app.

Hits are limited in number and to what the viewer may see. A failing finder is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from console.accounts.permissions import allows, allows_somewhere
from console.web.shell import navigation

log = logging.getLogger(__name__)
MOST = 12
EACH = 6
LONGEST = 100


@dataclass(frozen=True, slots=True)
class Hit:
    """Search result; `kind` is e.g. "endpoint", `icon` a symbol of the sprite."""

    kind: str
    label: str
    url: str
    icon: str
    detail: str = ""


Find = Callable[[Any, str], Sequence[Hit]]
_finders: list[Find] = []


def register(find: Find) -> None:
    """Register `find(viewer, text)`, which returns at most `EACH` hits in one or two queries."""
    if find not in _finders:
        _finders.append(find)


def found(viewer: Any, text: str) -> list[Hit]:
    """Return the hits: prefix matches first, then substring matches."""
    wanted = cleaned(text)
    if not wanted:
        return []
    hits: list[Hit] = []
    for find in _finders:
        try:
            hits += find(viewer, wanted)[:EACH]
        except Exception:
            log.exception("Search finder failed; its hits are omitted")
    ranked = sorted(hits, key=lambda hit: not hit.label.casefold().startswith(wanted.casefold()))
    return ranked[:MOST]


def cleaned(text: str) -> str:
    return text.replace("\0", "").strip()[:LONGEST]


def find(viewer: Any, text: str) -> Sequence[Hit]:
    found = []
    for item in navigation.items():
        may = (allows_somewhere if item.role == "viewer" else allows)(viewer, item.role)
        url = navigation.url_of(item)
        if may and url and text.casefold() in item.label.casefold():
            found.append(Hit("page", item.label, url, item.icon))
    return found
