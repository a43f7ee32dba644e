"""Search finders of teams and users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from console.accounts import selectors
from console.accounts.permissions import allows
from console.web.shell.search import MAX_HITS_PER_FINDER, Hit


def find_teams(viewer: Any, text: str) -> Sequence[Hit]:
    rows = selectors.list_teams_with_role(viewer).filter(
        Q(name__icontains=text) | Q(slug__icontains=text)
    )
    return [
        Hit("team", team.name, reverse("accounts:team", args=[team.slug]), "users")
        for team in rows.order_by("name")[:MAX_HITS_PER_FINDER]
    ]


def find_users(viewer: Any, text: str) -> Sequence[Hit]:
    """Find users; only admins may list them."""
    if not allows(viewer, "admin"):
        return []
    page = reverse("accounts:people")
    return [
        Hit(
            "user",
            user.username,
            f"{page}?{urlencode({'q': user.username})}",
            "user",
            user.get_role_display(),
        )
        for user in selectors.list_users(search=text)[:MAX_HITS_PER_FINDER]
    ]
