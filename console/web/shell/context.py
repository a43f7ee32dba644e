"""Template context of the page shell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from console.accounts import gate
from console.accounts.permissions import Somebody, allows, allows_in_any_team
from console.core.registry import Registry
from console.web.shell import navigation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Banner:
    """Banner; `level` is a Tabler level (info, warning, danger)."""

    key: str
    level: str
    title: str
    text: str


Provider = Callable[[Somebody], Banner | None]
# A provider makes at most one cheap query and returns None for no banner.
_providers: Registry[Provider] = Registry()
register_banner = _providers.register


def list_banners(viewer: Somebody) -> list[Banner]:
    banners = []
    for provider in _providers:
        try:
            banner = provider(viewer)
        except Exception:
            log.exception("Banner provider failed; the banner is omitted")
            continue
        if banner is not None:
            banners.append(banner)
    return banners


def shell_context(request: HttpRequest) -> dict[str, Any]:
    """Return menu, banners and rights.

    `may_operate` and `may_admin` apply to the page's endpoint if it has one, else console-wide;
    `may_create` applies to any team.
    """
    user = getattr(request, "user", None)
    is_authenticated = user is not None and user.is_authenticated
    banners = list_banners(user) if is_authenticated else []
    return {
        "navigation": _menu(request) if is_authenticated else [],
        "banners": banners,
        "simulated_workers": any(banner.key == "simulated" for banner in banners),
        "may_operate": _may(request, "operator"),
        "may_admin": _may(request, "admin"),
        "may_create": allows_in_any_team(user, "operator"),
    }


def _may(request: HttpRequest, role: str) -> bool:
    user = getattr(request, "user", None)
    return allows(user, role) or allows(user, role, of=gate.get_subject(request))


def _menu(request: HttpRequest) -> list[dict[str, Any]]:
    menu: list[dict[str, Any]] = [
        {"item": item, "url": url, "active": False}
        for item in navigation.list_items()
        if navigation.may_open(request.user, item) and (url := navigation.url_of(item))
    ]
    # A page of an object, such as an endpoint's board, belongs to the list of its kind.
    named = gate.parse_route(request.resolver_match)
    of_list = str(reverse(named[0].list_url)) if named else ""
    for path in filter(None, (of_list, request.path)):
        here = [entry for entry in menu if _is_at(path, str(entry["url"]))]
        if here:  # longest match, for nested paths
            max(here, key=lambda entry: len(str(entry["url"])))["active"] = True
            break
    return menu


def _is_at(path: str, url: str) -> bool:
    return path == url or (url != "/" and path.startswith(url))
