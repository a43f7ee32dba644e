"""From "this is who they say" to a session: the same way for passwords and for providers.

Promises that a session gets a new key when somebody logs in, and that every login, refusal and
logout is on the trail with address and reason, never with what was typed as a name or password.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from console.accounts.models import Role, User
from console.audit.record import record
from console.signon import totp
from console.signon.models import FACTS, Session
from console.web.server.client_address import client_address


@receiver(user_logged_in)
def note(request: HttpRequest, **_: Any) -> None:
    """Whoever logs somebody in, the session has an age; flow.py adds how it was done."""
    now = time.time()
    request.session[FACTS] = {
        "at": now,
        "confirmed": now,
        "address": client_address(request),
        "agent": request.headers.get("User-Agent", "")[:200],
    }


def add(request: HttpRequest, **more: Any) -> None:
    request.session[FACTS] = {**request.session.get(FACTS, {}), **more}


def of(request: HttpRequest) -> dict[str, Any]:
    return dict(request.session.get(FACTS, {}))


log = logging.getLogger(__name__)
BACKEND = "django.contrib.auth.backends.ModelBackend"
LOCAL = "with a password"
UNKNOWN = "user/(unknown)"
BREAK_GLASS = "break-glass"
_PENDING = "signon_pending"
_PENDING_S = 600


@dataclass(frozen=True, slots=True)
class Pending:
    """Somebody whose password (or provider) was right and whose second factor is still wanted."""

    user: int
    method: str
    next: str
    at: float
    more: dict[str, str]
    # Of the password: one that is reset ends this, too. "" in a session of an earlier version.
    proof: str = ""


def begin(
    request: HttpRequest,
    user: User,
    method: str,
    next_: str,
    *,
    trusted: bool = False,
    more: dict[str, str] | None = None,
) -> bool:
    """Whether the person is logged in now; if not, they are to be asked for their second factor.

    `trusted`: the provider has asked for one. `more` is kept with the session."""
    if trusted or not totp.on(user):
        finish(request, user, method, trusted=trusted, more=more)
        return True
    request.session.flush()  # nothing from before, and a new key
    proof = user.get_session_auth_hash()
    kept = Pending(user.pk, method, next_, time.time(), more or {}, proof)
    request.session[_PENDING] = asdict(kept)
    return False


def pending(request: HttpRequest) -> tuple[Pending, User] | None:
    kept = request.session.get(_PENDING)
    if kept is None or kept["at"] < time.time() - _PENDING_S:
        return None
    found = Pending(**kept)
    user = User.objects.filter(pk=found.user, is_active=True).first()
    if user is None or not constant_time_compare(found.proof, user.get_session_auth_hash()):
        return None
    return found, user


def finish(
    request: HttpRequest,
    user: User,
    method: str,
    *,
    trusted: bool = False,
    more: dict[str, str] | None = None,
) -> None:
    """Log in; `method` reads like "with a password and a code"."""
    request.session.pop(_PENDING, None)
    auth.login(request, user, backend=BACKEND)
    add(request, method=method, trusted=trusted, **(more or {}))
    # Nobody else clears what has ended, and a login writes here anyway.
    request.session.clear_expired()
    broken = settings.SIGNON.local_login == BREAK_GLASS and method.startswith(LOCAL)
    verb = "user.login.break_glass" if broken else "user.login"
    record(user, verb, target(user), {"method": method, **_where(request)})


def must_have_factor(request: HttpRequest, user: User) -> bool:
    """The policy wants a second factor, and neither person nor provider brought one."""
    wanted = settings.SIGNON.second_factor
    asked = wanted == "everybody" or (wanted == "admins" and user.role == Role.ADMIN)
    return asked and not of(request).get("trusted") and not totp.on(user)


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
