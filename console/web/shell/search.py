"""The quick search: things and pages by a few letters of their names.

Every room registers what it can find; nobody edits a list of all. Knows no app. Promises few hits,
only those the viewer may see, and that a room which fails leaves the others' hits standing.
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
    """`kind` as in "endpoint"; `icon` is a symbol of the sprite."""

    kind: str
    label: str
    url: str
    icon: str
    detail: str = ""


Find = Callable[[Any, str], Sequence[Hit]]
_finders: list[Find] = []


def register(find: Find) -> None:
    """`find(viewer, text)` answers at most `EACH` hits, in one or two queries."""
    if find not in _finders:
        _finders.append(find)


def found(viewer: Any, text: str) -> list[Hit]:
    """Names that begin with the text first, then those that hold it."""
    wanted = cleaned(text)
    if not wanted:
        return []
    hits: list[Hit] = []
    for find in _finders:
        try:
            hits += find(viewer, wanted)[:EACH]
        except Exception:
            log.exception("a room's search failed")
    ranked = sorted(hits, key=lambda hit: not hit.label.casefold().startswith(wanted.casefold()))
    return ranked[:MOST]


def cleaned(text: str) -> str:
    """Without what a database refuses."""
    return text.replace("\0", "").strip()[:LONGEST]


def find(viewer: Any, text: str) -> Sequence[Hit]:
    found = []
    for item in navigation.items():
        may = (allows_somewhere if item.role == "viewer" else allows)(viewer, item.role)
        url = navigation.url_of(item)
        if may and url and text.casefold() in item.label.casefold():
            found.append(Hit("page", item.label, url, item.icon))
    return found
