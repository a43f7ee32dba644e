"""Registry of the tabs below Alerts; each app registers its own."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import NoReverseMatch, reverse


@dataclass(frozen=True, slots=True)
class AlertsSection:
    """`order`: Firing is 10, Rules 20, Silences 30, Receivers 40, History 50."""

    label: str
    url_name: str
    order: int


_sections: dict[str, AlertsSection] = {}


def register(section: AlertsSection) -> None:
    """Add a section (from AppConfig.ready); the same URL name replaces the previous entry."""
    _sections[section.url_name] = section


def section_links() -> list[tuple[str, str]]:
    """Return label and URL of the sections whose pages exist in this build."""
    found = []
    for section in sorted(_sections.values(), key=lambda one: (one.order, one.label)):
        try:
            found.append((section.label, reverse(section.url_name)))
        except NoReverseMatch:
            continue
    return found
