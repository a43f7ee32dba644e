"""The console's menu: every app registers its own entry, nobody edits a list of all.

Knows no app; an entry is a label, a URL's name, an icon of the sprite and a place in the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, reverse


@dataclass(frozen=True, slots=True)
class NavItem:
    """`icon` is a symbol of templates/console/icons.html; `order` counts from 10 (Overview)."""

    label: str
    url_name: str
    icon: str
    order: int
    role: str = "viewer"  # the least role that sees it

    @property
    def section(self) -> str:
        """Under which heading it stands, "" for those on top."""
        return next(title for first, title in _SECTIONS if self.order >= first)


# From which place in the order on, the last first.
_SECTIONS = ((80, "Administration"), (60, "Machines"), (50, "Numbers"), (30, "Traffic"), (0, ""))


_items: dict[str, NavItem] = {}


def register(item: NavItem) -> None:
    """Called from AppConfig.ready; a second call for the same URL replaces the first."""
    _items[item.url_name] = item


def items() -> list[NavItem]:
    return sorted(_items.values(), key=lambda item: (item.order, item.label))


def url_of(item: NavItem) -> str:
    """ "" where its page is not there in this build."""
    try:
        return reverse(item.url_name)
    except NoReverseMatch:
        return ""


@dataclass(frozen=True, slots=True)
class Tab:
    """`kind` is whose tab it is, such as "endpoint"; `order` counts from 10 (Overview)."""

    kind: str
    label: str
    url_name: str
    icon: str
    order: int


_tabs: dict[tuple[str, str], Tab] = {}


def register_tabs(tab: Tab) -> None:
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
