"""Settings of the login that contradict each other."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register()
def login_limits(**_: Any) -> list[CheckMessage]:
    ladder = (
        settings.LOGIN_FAILURES_PER_USER,
        settings.LOGIN_FAILURES_PER_ADDRESS,
        settings.LOGIN_BRAKE_PER_USER,
        settings.LOGIN_BRAKE,
    )
    if ladder[0] > 0 and list(ladder) == sorted(ladder):
        return []
    return [
        Error(
            "The login limit per address is lower than the one per user, or one of them is off.",
            hint="Keep 0 < LOGIN_FAILURES_PER_USER <= LOGIN_FAILURES_PER_ADDRESS"
            " <= LOGIN_BRAKE_PER_USER <= LOGIN_BRAKE.",
            id="emberline.E007",
        )
    ]
