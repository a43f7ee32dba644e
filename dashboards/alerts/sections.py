"""The pages below Alerts: each app registers its own, nobody edits a list of all. Knows no app."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import NoReverseMatch, reverse


@dataclass(frozen=True, slots=True)
class AlertsSection:
    """`order` counts from 10 (Firing); Rules is 20, Silences 30, Receivers 40, History 50."""

    label: str
    url_name: str
    order: int


_sections: dict[str, AlertsSection] = {}


def register(section: AlertsSection) -> None:
    """Called from AppConfig.ready; a second call for the same URL replaces the first."""
    _sections[section.url_name] = section


def links() -> list[tuple[str, str]]:
    """Label and address, of those whose pages are there in this build."""
    found = []
    for section in sorted(_sections.values(), key=lambda one: (one.order, one.label)):
        try:
            found.append((section.label, reverse(section.url_name)))
        except NoReverseMatch:
            continue
    return found
