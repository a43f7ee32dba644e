"""How often a login may fail: per user name and per address, counted in the database.

Promises that the limit holds across processes and restarts. An attempt is counted before its
password is looked at and forgiven when it was right, so many at once gain nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.accounts.models import LoginFailure


def attempt(username: str, address: str) -> int:
    """Count one attempt; 0 when it may go on, else the seconds to wait (and it is not counted)."""
    now = timezone.now()
    window = timedelta(seconds=settings.LOGIN_WINDOW_S)
    name = _name(username)
    with transaction.atomic():
        LoginFailure.objects.filter(at__lt=now - window).delete()
        wait = max(
            _wait(now, settings.LOGIN_FAILURES_PER_USER, username=name),
            _wait(now, settings.LOGIN_FAILURES_PER_ADDRESS, address=address),
        )
        if not wait:
            LoginFailure.objects.create(username=name, address=address, at=now)
    return wait


def forgive(username: str) -> None:
    """The password was right."""
    LoginFailure.objects.filter(username=_name(username)).delete()


def _wait(now: datetime, allowed: int, **who: str) -> int:
    """Seconds until the oldest of the last `allowed` attempts has left the window."""
    times = LoginFailure.objects.filter(**who).order_by("-at").values_list("at", flat=True)
    recent = list(times[:allowed])
    if len(recent) < allowed:
        return 0
    free = recent[-1] + timedelta(seconds=settings.LOGIN_WINDOW_S)
    return max(1, round((free - now).total_seconds()))


def _name(username: str) -> str:
    return username.strip().casefold()[:150]
