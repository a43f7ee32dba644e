"""From "this is who they say" to a session: the same way for passwords and for providers.

Promises that a session gets a new key when somebody logs in, and that every login, refusal and
logout is on the trail with address and reason, never with what was typed as a name or password.
"""

from __future__ import annotations

import logging

from django.contrib import auth
from django.http import HttpRequest

from console.accounts.models import User
from console.audit.record import record
from console.signon import facts
from console.signon.models import Session
from console.web.client_address import client_address

log = logging.getLogger(__name__)
BACKEND = "django.contrib.auth.backends.ModelBackend"
LOCAL = "with a password"
UNKNOWN = "user/(unknown)"


def finish(request: HttpRequest, user: User, method: str) -> None:
    """Log in; `method` reads like "password + code"."""
    auth.login(request, user, backend=BACKEND)
    facts.add(request, method=method)
    # Nobody else clears what has ended, and a login writes here anyway.
    request.session.clear_expired()
    record(user, "user.login", target(user), {"method": method, **_where(request)})


def refused(request: HttpRequest, user: User | None, reason: str, method: str = LOCAL) -> None:
    """Nobody is logged in, so nobody is the actor; a name that is nobody's is not repeated: people
    type their password into the wrong field."""
    changes = {"reason": reason, "method": method, **_where(request)}
    record(None, "user.login.refused", target(user) if user else UNKNOWN, changes)
    log.warning("login refused: %s (%s)", reason, method)


def leave(request: HttpRequest) -> None:
    user = request.user
    if isinstance(user, User):
        record(user, "user.logout", target(user), _where(request))
    auth.logout(request)


def end_sessions(user: User, but: str = "") -> int:
    """Every session of the person, except the one whose row is `but`."""
    ended, _ = Session.objects.filter(user=user).exclude(pk=but).delete()
    return ended


def target(user: User) -> str:
    return f"user/{user.username}"


def _where(request: HttpRequest) -> dict[str, str]:
    return {"address": client_address(request)}
