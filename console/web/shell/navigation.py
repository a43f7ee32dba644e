"""The console's menu: every app registers its own entry, nobody edits a list of all.

Knows no app; an entry is a label, a URL's name, an icon of the sprite and a place in the order.
"""

from __future__ import annotations

from dataclasses import dataclass

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
