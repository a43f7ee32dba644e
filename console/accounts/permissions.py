"""What a role may do: viewer looks, operator changes endpoints, admin also changes access.

Promises one ladder for pages, REST and commands. Everything outside a view calls `require`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponseBase

from console.accounts.models import Role, User

RANK: dict[str, int] = {Role.VIEWER.value: 0, Role.OPERATOR.value: 1, Role.ADMIN.value: 2}
_NEEDED = {
    Role.VIEWER.value: "an account",
    Role.OPERATOR.value: "the operator role",
    Role.ADMIN.value: "the admin role",
}

View = Callable[..., HttpResponseBase]


def effective_role(user: User) -> str:
    """The user's role, lowered to the token's when a token is used."""
    if user.role_cap is None:
        return user.role
    return min(user.role, user.role_cap, key=lambda role: RANK[role])


def allows(user: User | AnonymousUser | None, role: str) -> bool:
    if role not in RANK:
        raise ImproperlyConfigured(f"unknown role {role!r}; one of {', '.join(RANK)}")
    if not isinstance(user, User) or not user.is_active:
        return False
    return RANK[effective_role(user)] >= RANK[role]


def require(user: User | AnonymousUser | None, role: str) -> None:
    """Raise PermissionDenied unless the user has the role; None is nobody, not the system."""
    if not allows(user, role):
        raise PermissionDenied(f"This needs {_NEEDED[role]}. Ask an admin of this console for it.")


def role_required(role: str) -> Callable[[View], View]:
    """Decorate a function view. A viewer's view needs none: the middleware asks for a login."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            require(request.user, role)
            return view(request, *args, **kwargs)

        return guarded

    return decorate
