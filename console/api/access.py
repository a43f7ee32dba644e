"""REST authentication (bearer token, or session with CSRF), role permission and throttle."""

from __future__ import annotations

import time
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import auth
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from rest_framework import authentication, exceptions
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from console.accounts import credentials, gate
from console.accounts.models import ApiToken, Role, User
from console.accounts.permissions import allows, allows_in_any_team
from console.web.server.client_address import client_address, network_of

if TYPE_CHECKING:  # DRF imports this module during its own import
    from rest_framework.views import APIView
if TYPE_CHECKING:  # DRF imports this module during its own import
    from rest_framework.views import APIView


class LocalAuthentication(authentication.BaseAuthentication):
    """Authenticate in-process calls of the console's commands (console/local_api.py)."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        if request.META.get(credentials.LOCAL_PROOF_KEY) is not credentials.LOCAL_PROOF:
            return None
        return credentials.make_system_user(), None


class TokenAuthentication(authentication.BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        kind, _, clear = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        token = credentials.find_token(clear.strip())
        if token is None:
            raise exceptions.AuthenticationFailed(
                "Unknown, expired or revoked token. Create a new one on your profile page."
            )
        token.user.role_cap, token.user.team_cap = token.role, token.team_id
        token.user.expires_cap = token.expires_at
        return token.user, token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002
        return 'Bearer realm="emberline"'


class SessionAuthentication(authentication.SessionAuthentication): ...


def identify_sender(scope: Any) -> str:
    """Return the sender of a request before its body is read, "" if anonymous.

    Runs in its own thread. Without a token or session cookie the database is not queried.
    """
    request = ASGIRequest(scope, BytesIO())
    kind, _, clear = request.headers.get("Authorization", "").partition(" ")
    try:
        if kind.lower() == "bearer" and request.path.startswith("/api/"):
            token = credentials.find_token(clear.strip())
            return f"user {token.user_id}" if token is not None else ""
        key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        if not key:
            return ""
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
        user = auth.get_user(request)
        return f"user {user.pk}" if user.is_authenticated else ""
    finally:
        close_old_connections()  # opened by this thread


class RolePermission(BasePermission):
    message = "Your role, or the role of this token, does not permit this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Raise Http404 for an object of a team the caller is not in."""
        user = request.user
        if not isinstance(user, User):
            return False
        reading = request.method in SAFE_METHODS
        default = Role.VIEWER if reading else Role.OPERATOR
        role = str(getattr(view, "read_role" if reading else "write_role", default.value))
        if role == Role.MEMBER:
            return allows(user, role)
        http_request = request._request
        gate.check_access(http_request, user)
        thing = gate.get_subject(http_request) if not allows(user, role) else None
        if thing is not None:
            return allows(user, role, of=thing)
        somewhere = getattr(view, "write_somewhere", False) or role == Role.VIEWER
        return allows_in_any_team(user, role) if somewhere else allows(user, role)


class AnonymousThrottle(SimpleRateThrottle):
    scope = "anonymous"
    timer = time.monotonic  # a corrected clock must not refuse everybody

    def get_cache_key(self, request: Request, view: APIView) -> str | None:  # noqa: ARG002
        if request.user and request.user.is_authenticated:
            return None
        return f"throttle_anonymous_{network_of(client_address(request))}"


class CallerThrottle(SimpleRateThrottle):
    scope = "caller"
    timer = time.monotonic

    def get_cache_key(self, request: Request, view: APIView) -> str | None:  # noqa: ARG002
        if not (request.user and request.user.is_authenticated):
            return None
        return f"throttle_caller_{request.user.pk}"
