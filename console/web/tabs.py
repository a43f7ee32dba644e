"""The tabs of a thing's pages: every app registers its own, nobody edits a list of all.

Knows no app; a tab is a label, a URL's name (reversed with the thing's name), an icon of the
sprite and a place in the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, reverse


@dataclass(frozen=True, slots=True)
class Tab:
    """`kind` is whose tab it is, such as "endpoint"; `order` counts from 10 (Overview)."""

    kind: str
    label: str
    url_name: str
    icon: str
    order: int


_tabs: dict[tuple[str, str], Tab] = {}


def register(tab: Tab) -> None:
    """Called from AppConfig.ready; a second call for the same URL replaces the first."""
    _tabs[tab.kind, tab.url_name] = tab


def of(kind: str, name: str, path: str) -> list[dict[str, Any]]:
    """The tabs of the thing called `name`, in order. `active` is the one whose address is the
    longest beginning of `path`, so that a page below a tab belongs to it."""
    found = []
    for tab in sorted(_tabs.values(), key=lambda one: (one.order, one.label)):
        if tab.kind != kind:
            continue
        try:
            found.append({"tab": tab, "url": reverse(tab.url_name, args=[name]), "active": False})
        except NoReverseMatch:  # its page is not there in this build
            continue
    here = [entry for entry in found if path.startswith(str(entry["url"]))]
    if here:
        max(here, key=lambda entry: len(str(entry["url"])))["active"] = True
    return found
