"""Login flow from verified identity to session, for passwords and providers.

Each login gets a new session key. Logins, rejections and logouts are audited with address and
reason, never with the entered name or password.
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
def note_login(request: HttpRequest, **_: Any) -> None:
    """Set the session's login time (user_logged_in signal), whichever code logs in."""
    now = time.time()
    request.session[FACTS] = {
        "at": now,
        "confirmed": now,
        "address": client_address(request),
        "agent": request.headers.get("User-Agent", "")[:200],
    }


def add_facts(request: HttpRequest, **more: Any) -> None:
    request.session[FACTS] = {**request.session.get(FACTS, {}), **more}


def login_facts(request: HttpRequest) -> dict[str, Any]:
    return dict(request.session.get(FACTS, {}))


log = logging.getLogger(__name__)
BACKEND = "django.contrib.auth.backends.ModelBackend"
LOCAL_METHOD = "with a password"
UNKNOWN = "user/(unknown)"
BREAK_GLASS = "break-glass"
_PENDING = "signon_pending"
_PENDING_S = 600


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """Login accepted by password or provider, with a pending second factor."""

    user: int
    method: str
    next: str
    at: float
    more: dict[str, str]
    # Session auth hash: a password reset ends the pending login. "" in older sessions.
    proof: str = ""


def begin_login(
    request: HttpRequest,
    user: User,
    method: str,
    next_: str,
    *,
    trusted: bool = False,
    more: dict[str, str] | None = None,
) -> bool:
    """Log in, or start the second factor; return whether the user is logged in.

    `trusted`: the provider checked a second factor. `more` is stored in the session.
    """
    if trusted or not totp.is_on(user):
        finish_login(request, user, method, trusted=trusted, more=more)
        return True
    request.session.flush()  # drops old data and rotates the key
    proof = user.get_session_auth_hash()
    kept = PendingLogin(user.pk, method, next_, time.time(), more or {}, proof)
    request.session[_PENDING] = asdict(kept)
    return False


def pending_login(request: HttpRequest) -> tuple[PendingLogin, User] | None:
    kept = request.session.get(_PENDING)
    if kept is None or kept["at"] < time.time() - _PENDING_S:
        return None
    found = PendingLogin(**kept)
    user = User.objects.filter(pk=found.user, is_active=True).first()
    if user is None or not constant_time_compare(found.proof, user.get_session_auth_hash()):
        return None
    return found, user


def finish_login(
    request: HttpRequest,
    user: User,
    method: str,
    *,
    trusted: bool = False,
    more: dict[str, str] | None = None,
) -> None:
    """Log in; `method` is a phrase such as "with a password and a code"."""
    request.session.pop(_PENDING, None)
    auth.login(request, user, backend=BACKEND)
    add_facts(request, method=method, trusted=trusted, **(more or {}))
    # No other job deletes expired sessions, and a login writes anyway.
    request.session.clear_expired()
    broken = settings.SIGNON.local_login == BREAK_GLASS and method.startswith(LOCAL_METHOD)
    verb = "user.login.break_glass" if broken else "user.login"
    record(user, verb, target(user), {"method": method, **_where(request)})


def must_have_factor(request: HttpRequest, user: User) -> bool:
    wanted = settings.SIGNON.second_factor
    required = wanted == "everybody" or (wanted == "admins" and user.role == Role.ADMIN)
    return required and not login_facts(request).get("trusted") and not totp.is_on(user)


def record_refusal(
    request: HttpRequest, user: User | None, reason: str, method: str = LOCAL_METHOD
) -> None:
    """Audit a rejected login without an actor.

    Unknown names are not stored: users type passwords into the name field.
    """
    changes = {"reason": reason, "method": method, **_where(request)}
    record(None, "user.login.refused", target(user) if user else UNKNOWN, changes)
    log.warning("Login rejected: %s (%s)", reason, method)


def log_out(request: HttpRequest) -> None:
    user = request.user
    if isinstance(user, User):
        record(user, "user.logout", target(user), _where(request))
    auth.logout(request)


def end_sessions(user: User, but: str = "") -> int:
    """End all sessions of the user except the row `but`; return how many."""
    ended, _ = Session.objects.filter(user=user).exclude(pk=but).delete()
    return ended


def target(user: User) -> str:
    return f"user/{user.username}"


def _where(request: HttpRequest) -> dict[str, str]:
    return {"address": client_address(request)}
