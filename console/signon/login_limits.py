"""Login rate limits, counted in the database for all processes and across restarts.

Knowing a name does not suffice to lock its owner out. Five failures block one name from one
network, twenty block a network. When a name is attacked from many networks, or the whole console
is, each network gets one attempt per window. Browsers in which the user has logged in before are
counted separately.

Attempts are counted before the password check and released on success, so that parallel attempts
cannot bypass the limits.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from console.signon.models import LoginAttempt

_BRAKED_LIMIT = 1


def count_attempt(name: str, network: str, device: str = "") -> int:
    """Count one attempt; return 0 if allowed, else the seconds to wait (not counted).

    `device` is the result of `known` for this browser and name.
    """
    now = timezone.now()
    LoginAttempt.objects.filter(at__lte=now - _window()).delete()
    LoginAttempt.objects.filter(at__gt=now).update(at=now)  # by a clock that was ahead
    who = fold_name(name)
    braked = not device and _is_braked(who)
    # Count, then check: concurrent attempts can only be rejected too early, never too late.
    row = LoginAttempt.objects.create(name=who, network=network, device=device, at=now)
    wait = max(_wait(row, allowed, **count) for allowed, count in _limits(row, braked))
    if wait:
        row.delete()
    return wait


def forgive_attempt(name: str, network: str, device: str = "") -> None:
    """Release a successful attempt; failures from other networks stay counted."""
    rows = LoginAttempt.objects.filter(name=fold_name(name), device=device)
    (rows if device else rows.filter(network=network)).delete()


def fold_name(name: str) -> str:
    return name.strip().casefold()[:150]


def _limits(row: LoginAttempt, braked: bool) -> list[tuple[int, dict[str, Any]]]:
    own = settings.LOGIN_FAILURES_PER_USER
    if row.device:
        return [(own, {"device": row.device, "name": row.name})]
    strangers = {"network": row.network, "device": ""}
    return [
        (_BRAKED_LIMIT if braked else own, {**strangers, "name": row.name}),
        (settings.LOGIN_FAILURES_PER_ADDRESS, strangers),
    ]


def _is_braked(name: str) -> bool:
    strangers = LoginAttempt.objects.filter(device="")
    return (
        strangers.filter(name=name).count() >= settings.LOGIN_BRAKE_PER_USER
        or strangers.count() >= settings.LOGIN_BRAKE
    )


def _wait(row: LoginAttempt, allowed: int, **count: Any) -> int:
    """Return the seconds until the oldest of the last `allowed` attempts leaves the window."""
    others = LoginAttempt.objects.filter(**count).exclude(pk=row.pk).order_by("-at")
    recent: list[datetime] = list(others.values_list("at", flat=True)[:allowed])
    if len(recent) < allowed:
        return 0
    return max(1, round((recent[-1] + _window() - row.at).total_seconds()))


def _window() -> timedelta:
    return timedelta(seconds=settings.LOGIN_WINDOW_S)


_SALT = "console.signon.device"
_AGE_S = 180 * 24 * 3600


def known_device(request: HttpRequest, name: str) -> str:
    """Return an id of this browser if the name has logged in with it before, else ""."""
    cookie = request.COOKIES.get(settings.DEVICE_COOKIE_NAME, "")
    try:
        whose, mark = signing.loads(cookie, salt=_SALT, max_age=_AGE_S)
    except (signing.BadSignature, ValueError, TypeError):  # missing or foreign cookie
        return ""
    return str(mark) if whose == fold_name(name) else ""


def remember_device(request: HttpRequest, response: HttpResponseBase, name: str) -> None:
    mark = known_device(request, name) or secrets.token_hex(16)
    response.set_cookie(
        settings.DEVICE_COOKIE_NAME,
        signing.dumps([fold_name(name), mark], salt=_SALT),
        max_age=_AGE_S,
        httponly=True,
        secure=settings.SESSION_COOKIE_SECURE,
        samesite="Lax",
    )
