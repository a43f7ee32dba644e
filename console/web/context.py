"""What the page shell needs on every page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from console.accounts.permissions import allows
from console.web import banners, navigation


def shell(request: HttpRequest) -> dict[str, Any]:
    """Menu, banners, and what the viewer may do (`may_operate`, `may_admin`)."""
    user = getattr(request, "user", None)
    known = user is not None and user.is_authenticated
    shown = banners.banners() if known else []
    return {
        "navigation": _menu(request) if known else [],
        "banners": shown,
        "simulated_workers": any(banner.key == "simulated" for banner in shown),
        "may_operate": allows(user, "operator"),
        "may_admin": allows(user, "admin"),
    }


def _menu(request: HttpRequest) -> list[dict[str, Any]]:
    found = []
    for item in navigation.items():
        if not allows(request.user, item.role):
            continue
        try:
            url = reverse(item.url_name)
        except NoReverseMatch:  # its page is not there in this build
            continue
        here = request.path == url or (url != "/" and request.path.startswith(url))
        found.append({"item": item, "url": url, "active": here})
    return found
