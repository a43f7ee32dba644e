"""Object-level access check for team-owned objects, run once per request before the view.

An app registers the URL converter of its objects (`<endpoint:name>`) and a lookup. An object of a
team that the user is not in answers 404. Users without any role see only pages about themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import ResolverMatch, reverse

from console.accounts.models import Role, User
from console.accounts.permissions import (
    RANK,
    Somebody,
    View,
    allows,
    allows_in_any_team,
    require,
    require_in_any_team,
)


@dataclass(frozen=True, slots=True)
class OwnedObject:
    team_id: int | None


FindObject = Callable[[str], OwnedObject | None]
ListNames = Callable[[User], Collection[str]]

NO_RIGHT = (
    "Your account has no role yet. Ask an administrator for a console role, or a team "
    "administrator to add you to a team."
)


@dataclass(frozen=True, slots=True)
class GateKind:
    """Kind of team-owned object.

    `find(name)` returns the object or None; `names(user)` the names the user may view. Pages
    redirect to `list_url` (a URL name) when the object was deleted.
    """

    find: FindObject
    names: ListNames
    list_url: str


_kinds: dict[str, GateKind] = {}
_SUBJECT = "_subject_of_the_gate"
_CONVERTED = re.compile(r"<(\w+):(\w+)>")


def register_kind(converter: str, kind: GateKind) -> None:
    _kinds[converter] = kind


def find(kind: str, name: str) -> OwnedObject | None:
    """Return the object of a kind such as "endpoint"; None also for an unregistered kind."""
    return _kinds[kind].find(name) if kind in _kinds else None


def parse_route(match: ResolverMatch | None) -> tuple[GateKind, str] | None:
    """Return the kind and name in the route; None when it names no team-owned object."""
    for converter, parameter in _CONVERTED.findall(match.route if match else ""):
        if converter in _kinds and match is not None:
            return _kinds[converter], str(match.kwargs[parameter])
    return None


def filter_references(words: Sequence[str], user: Somebody) -> list[str]:
    """Return the visible references (such as "endpoint demo") and a count of the others."""
    if user is None or allows(user, Role.VIEWER):
        return list(words)
    visible = {
        f"{word} {name}"
        for word, kind in _kinds.items()
        for name in (kind.names(user) if isinstance(user, User) else ())
    }
    allowed = [word for word in words if word in visible or word.partition(" ")[0] not in _kinds]
    hidden = len(words) - len(allowed)
    return [*allowed, f"{hidden} of other teams"] if hidden else allowed


def get_subject(request: HttpRequest) -> OwnedObject | None:
    """Return the object of this request, cached on the request."""
    cache = vars(request)
    if _SUBJECT not in cache:
        route = parse_route(request.resolver_match)
        cache[_SUBJECT] = route[0].find(route[1]) if route else None
    return cache[_SUBJECT]


def forget_subject(request: HttpRequest) -> None:
    """Drop the cached object, so that a long-lived request checks it again."""
    vars(request).pop(_SUBJECT, None)


def check_access(request: HttpRequest, user: User) -> None:
    """Raise Http404 for a hidden object, PermissionDenied for a user without any role."""
    if allows(user, Role.VIEWER):
        return
    if parse_route(request.resolver_match) is None:
        if not allows_in_any_team(user, Role.VIEWER):
            raise PermissionDenied(NO_RIGHT)
        return
    thing = get_subject(request)
    if thing is None or not allows(user, Role.VIEWER, of=thing):
        raise Http404


def role_required(role: str, *, somewhere: bool = False) -> Callable[[View], View]:
    """Require a role for a function view; viewer views are checked by the gate.

    For a view of a team-owned object, the role for that object suffices. With `somewhere`, the role
    in any team suffices and the action checks the team.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if somewhere:
                require_in_any_team(request.user, role)
            elif not allows(request.user, role):
                require(request.user, role, of=get_subject(request))
            return view(request, *args, **kwargs)

        # Decorators around it copy the attribute (functools.wraps).
        cast(Any, guarded).needs_no_right = RANK[role] == 0
        return guarded

    return decorate


class GateMiddleware:
    """Check page requests. REST views authenticate later and check in their permission class."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: View, _args: object, _kwargs: object
    ) -> HttpResponseBase | None:
        user = request.user
        if not isinstance(user, User) or hasattr(view, "cls") or _is_own_page(view):
            return None
        try:
            check_access(request, user)
        except Http404:
            route = parse_route(request.resolver_match)
            if route and request.method == "GET" and request.headers.get("HX-Request") == "true":
                # The object was deleted while its page polled.
                return HttpResponse(headers={"HX-Redirect": reverse(route[0].list_url)})
            raise
        return None


def _is_own_page(view: View) -> bool:
    """Return whether any account may open the view (login, profile)."""
    if not getattr(view, "login_required", True) or getattr(view, "needs_no_right", False):
        return True
    return f"{view.__module__}.".startswith(tuple(settings.PAGES_ABOUT_ONESELF))
