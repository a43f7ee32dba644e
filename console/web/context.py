"""What the page shell needs on every page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from console.accounts import gate
from console.accounts.permissions import allows, allows_somewhere
from console.web import banners, navigation


def shell(request: HttpRequest) -> dict[str, Any]:
    """Menu, banners, and what the viewer may do: `may_operate` and `may_admin` for the endpoint of
    this page where it is about one, else everywhere; `may_create` for some team at least."""
    user = getattr(request, "user", None)
    known = user is not None and user.is_authenticated
    shown = banners.banners(user) if known else []
    return {
        "navigation": _menu(request) if known else [],
        "banners": shown,
        "simulated_workers": any(banner.key == "simulated" for banner in shown),
        "may_operate": _may(request, "operator"),
        "may_admin": _may(request, "admin"),
        "may_create": allows_somewhere(user, "operator"),
    }


def _may(request: HttpRequest, role: str) -> bool:
    user = getattr(request, "user", None)
    return allows(user, role) or allows(user, role, of=gate.subject(request))


def _menu(request: HttpRequest) -> list[dict[str, Any]]:
    found = []
    for item in navigation.items():
        # What an operator uses is there for who operates something.
        may = allows if item.role == "admin" else allows_somewhere
        if not may(request.user, item.role):
            continue
        try:
            url = reverse(item.url_name)
        except NoReverseMatch:  # its page is not there in this build
            continue
        here = request.path == url or (url != "/" and request.path.startswith(url))
        found.append({"item": item, "url": url, "active": here})
    return found
