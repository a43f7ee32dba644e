"""Menu entries and tabs, registered by each app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, reverse

from console.accounts.permissions import allows, allows_in_any_team
from console.core.registry import Registry


@dataclass(frozen=True, slots=True)
class NavItem:
    """Menu entry; `icon` is a symbol of templates/console/icons.html, `order` counts from 10."""

    label: str
    url_name: str
    icon: str
    order: int
    role: str = "viewer"  # minimum role

    @property
    def section(self) -> str:
        """Return the heading, "" for top-level entries."""
        return next(title for first, title in _SECTIONS if self.order >= first)


# Minimum order of each section, last first.
_SECTIONS = ((80, "Administration"), (60, "Infrastructure"), (50, "Observability"), (0, ""))


_items: Registry[NavItem] = Registry(key=lambda item: item.url_name)
register_item = _items.register


def list_items() -> list[NavItem]:
    return sorted(_items, key=lambda item: (item.order, item.label))


def may_open(viewer: Any, item: NavItem) -> bool:
    """Return whether the item is shown; operator items are shown to operators of any team."""
    return (allows if item.role == "admin" else allows_in_any_team)(viewer, item.role)


def url_of(item: NavItem) -> str:
    """Return the URL, "" if the page is not installed."""
    try:
        return reverse(item.url_name)
    except NoReverseMatch:
        return ""


@dataclass(frozen=True, slots=True)
class Tab:
    """Tab of an object's pages, `kind` "endpoint", or of a part of the console, such as "costs".
    `order` counts from 10. Tabs with the same `group` share an entry of the first row; "" stands
    for a group of one.
    """

    kind: str
    label: str
    url_name: str
    icon: str
    order: int
    group: str = ""


_tabs: Registry[Tab] = Registry(key=lambda tab: (tab.kind, tab.url_name))
register_tab = _tabs.register


def register_tabs(kind: str, *tabs: tuple[str, str, str, int, str]) -> None:
    """Register tabs: label, URL name, icon, order, group."""
    for tab in tabs:
        register_tab(Tab(kind, *tab))


def list_tabs(kind: str, name: str, path: str) -> list[dict[str, Any]]:
    """Return the tabs of the object, `name` "" for a part of the console, in order; `active` has
    the longest URL that prefixes `path`.
    """
    of = [name] if name else []
    tabs = []
    for tab in sorted(_tabs, key=lambda one: (one.order, one.label)):
        if tab.kind != kind:
            continue
        try:
            tabs.append({"tab": tab, "url": reverse(tab.url_name, args=of), "active": False})
        except NoReverseMatch:  # page not installed
            continue
    here = [entry for entry in tabs if path.startswith(str(entry["url"]))]
    if here:
        max(here, key=lambda entry: len(str(entry["url"])))["active"] = True
    return tabs


def group_tabs(tabs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups of `list_tabs` in order; each has the URL and icon of its first tab."""
    groups: dict[str, dict[str, Any]] = {}
    for entry in tabs:
        tab = entry["tab"]
        label = tab.group or tab.label
        group = groups.setdefault(
            label,
            {"label": label, "url": entry["url"], "icon": tab.icon, "tabs": [], "active": False},
        )
        group["tabs"].append(entry)
        group["active"] |= entry["active"]
    return list(groups.values())
