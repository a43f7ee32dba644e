"""Cards of the Settings page, registered by each app.

A card with failing facts shows the failure. Cards contain no secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection
from django.urls import NoReverseMatch, reverse

from console.accounts.permissions import allows, allows_in_any_team
from console.core.registry import Registry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fact:
    label: str
    value: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """Settings card; `facts(viewer)` makes few queries.

    `url_name` and `action` link to where it is changed; `role` is the required console-wide role.
    """

    key: str
    title: str
    text: str
    order: int
    facts: Callable[[Any], Sequence[Fact]]
    url_name: str = ""
    action: str = ""
    role: str = "viewer"


@dataclass(frozen=True, slots=True)
class ShownCard:
    card: Card
    facts: Sequence[Fact]
    url: str
    failed: bool = False


_cards: Registry[Card] = Registry(key=lambda card: card.key)
register_card = _cards.register


def list_cards(viewer: Any) -> list[ShownCard]:
    return [_show_card(viewer, card) for card in visible_cards(viewer)]


def visible_cards(viewer: Any) -> list[Card]:
    mine = [card for card in _cards if _may_see(viewer, card)]
    return sorted(mine, key=lambda card: (card.order, card.title))


def _may_see(viewer: Any, card: Card) -> bool:
    return (allows_in_any_team if card.role == "viewer" else allows)(viewer, card.role)


def _show_card(viewer: Any, card: Card) -> ShownCard:
    try:
        url = reverse(card.url_name) if card.url_name else ""
    except NoReverseMatch:  # page not installed
        url = ""
    try:
        return ShownCard(card, card.facts(viewer), url)
    except Exception:
        log.exception("Settings card %s failed", card.key)
        return ShownCard(card, (), url, failed=True)


_WORKERS = {"vllm": "vLLM", "simulated": "simulated (no model)"}
_PROVISIONERS = {
    "local": "local processes",
    "kubernetes": "Kubernetes",
    "fake": "none (fake provisioner)",
}


def facts(_viewer: Any) -> Sequence[Fact]:
    emberline = settings.EMBERLINE
    return (
        Fact("Workers", _WORKERS.get(emberline.workers, emberline.workers)),
        Fact("Provisioner", _PROVISIONERS.get(emberline.provisioner, emberline.provisioner)),
        Fact("Database", connection.display_name),
        Fact("Listen address", f"{emberline.host}:{emberline.port}"),
        Fact("Cookies", "HTTPS only" if settings.SESSION_COOKIE_SECURE else "HTTP and HTTPS"),
        Fact("Log", f"{emberline.log_level}, {emberline.log_format} format"),
    )


CARD = Card(
    "installation",
    "Installation",
    "Set by environment variables; changes require a restart.",
    10,
    facts,
    "web:about",
    "Versions",
)
