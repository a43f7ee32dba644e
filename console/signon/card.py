"""How people get in, on the Settings page: the gist of it, and the way to the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from console.signon.flow import BREAK_GLASS
from console.web.shell.cards import Card, Fact
from console.web.templatetags.emberline import duration

_FACTOR = {
    "optional": "for who wants one",
    "admins": "asked of admins",
    "everybody": "asked of all",
}


def facts(_viewer: Any) -> Sequence[Fact]:
    policy = settings.SIGNON
    only = policy.local_login == BREAK_GLASS
    names = ", ".join(one.name for one in settings.OIDC_PROVIDERS)
    return (
        Fact("Providers", names or "none"),
        Fact("Passwords", "for break-glass admins only" if only else "for everybody"),
        Fact("Second factor", _FACTOR[policy.second_factor]),
        Fact("Sessions end", f"after {duration(policy.longest.total_seconds())}"),
    )


CARD = Card(
    "signon", "Sign-on", "How people get in.", 60, facts, "signon:settings", "Groups and policy",
    role="admin",
)  # fmt: skip
