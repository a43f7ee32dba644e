"""Login flow from verified identity to session, for passwords, providers and passkeys.

allauth runs the steps between (second factor) and the session. Each login gets a new session key.
Logins, rejections and logouts are audited with address and reason, never with the entered name or
password.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.flows.login import get_authentication_records, perform_login
from allauth.account.models import Login
from allauth.account.stages import LoginStage
from allauth.account.utils import get_login_redirect_url
from allauth.mfa.models import Authenticator
from allauth.mfa.stages import AuthenticateStage
from django.conf import settings
from django.contrib import auth
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.crypto import constant_time_compare

from console.accounts.models import Role, User
from console.audit.record import record
from console.signon import factors, login_limits
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
LOCAL_METHOD = "with a password"
_PASSKEY_METHOD = "with a passkey"
_FACTOR_NAMES = {
    Authenticator.Type.TOTP: "a code",
    Authenticator.Type.RECOVERY_CODES: "a recovery code",
    Authenticator.Type.WEBAUTHN: "a passkey",
}
UNKNOWN = "user/(unknown)"
BREAK_GLASS = "break-glass"


class SecondFactorStage(AuthenticateStage):
    """Asks for the second factor, unless the identity provider verified one."""

    def handle(self) -> tuple[Any, bool]:
        if (self.login.signal_kwargs or {}).get("trusted"):
            return None, True
        return super().handle()


class UnchangedAccountStage(LoginStage):
    """Ends a login whose account was deactivated or whose password was reset meanwhile."""

    key = "unchanged_account"

    def handle(self) -> tuple[Any, bool]:
        user = self.login.user
        proof = (self.login.signal_kwargs or {}).get("proof")
        is_unchanged = (
            isinstance(user, User)
            and user.is_active
            and (proof is None or constant_time_compare(proof, user.get_session_auth_hash()))
        )
        return (None, True) if is_unchanged else (redirect("signon:login"), False)


class AccountAdapter(DefaultAccountAdapter):
    """allauth adapter: our stages, session data and audit log around its login."""

    def get_login_stages(self) -> list[str]:
        return [
            f"{__name__}.{stage.__name__}" for stage in (SecondFactorStage, UnchangedAccountStage)
        ]

    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:  # noqa: ARG002
        """Return False: confirmation.py asks, also users without a password."""
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_address(request)

    def pre_login(self, request: HttpRequest, user: User, **hook: Any) -> HttpResponse | None:
        """Reject a passkey where only break-glass admins log in without a provider."""
        if hook["signal_kwargs"] is None and not may_use_password(user.username):
            record_refusal(request, user, "local login is disabled", _PASSKEY_METHOD)
            self.add_message(request, 40, message="Log in with single sign-on.")
            return redirect("signon:login")
        return None

    def post_login(
        self,
        request: HttpRequest,
        user: User,
        *,
        signal_kwargs: dict[str, Any] | None,
        redirect_url: str | None,
        **_hook: Any,
    ) -> HttpResponse:
        login_info = signal_kwargs or {"method": _PASSKEY_METHOD, "trusted": False, "more": {}}
        method = login_info["method"] + _describe_factor(request, user, login_info["method"])
        add_facts(request, method=method, trusted=login_info["trusted"], **login_info["more"])
        # No other job deletes expired sessions, and a login writes anyway.
        request.session.clear_expired()
        local = method.startswith((LOCAL_METHOD, _PASSKEY_METHOD))
        broken = settings.SIGNON.local_login == BREAK_GLASS and local
        verb = "user.login.break_glass" if broken else "user.login"
        record(user, verb, target(user), {"method": method, **_where(request)})
        response = redirect(get_login_redirect_url(request, redirect_url))
        login_limits.remember_device(request, response, user.username)
        return response


def _describe_factor(request: HttpRequest, user: User, method: str) -> str:
    kinds = [
        authentication_record["type"]
        for authentication_record in get_authentication_records(request, user)
        if "type" in authentication_record
    ]
    return f" and {_FACTOR_NAMES[kinds[-1]]}" if kinds and method != _PASSKEY_METHOD else ""


def begin_login(
    request: HttpRequest,
    user: User,
    method: str,
    next_: str,
    *,
    trusted: bool = False,
    more: dict[str, str] | None = None,
) -> HttpResponse:
    """Log in, or redirect to the second factor; `method` is a phrase such as "with a password".

    `trusted`: the provider checked a second factor. `more` is stored in the session.
    """
    request.session.flush()  # drops old data and rotates the key
    # A password reset ends the pending login.
    proof = user.get_session_auth_hash()
    login_info = {"method": method, "trusted": trusted, "more": more or {}, "proof": proof}
    return perform_login(request, Login(user=user, redirect_url=next_, signal_kwargs=login_info))


def must_have_factor(request: HttpRequest, user: User) -> bool:
    policy = settings.SIGNON.second_factor
    required = policy == "everybody" or (policy == "admins" and user.role == Role.ADMIN)
    return required and not login_facts(request).get("trusted") and not factors.is_on(user)


def may_use_password(username: str) -> bool:
    """Return whether the user may log in without a provider."""
    policy = settings.SIGNON
    return policy.local_login != BREAK_GLASS or username.casefold() in policy.break_glass


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
