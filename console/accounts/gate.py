"""Whose is the thing this request is about? Read off the route, asked once, before any view.

A room registers a kind of thing by the converter which names it in URLs (`<endpoint:name>`), and
how to find its team. Promises that a thing of a team one has no part in answers as one which is
not there, and that people without any right see nothing but pages about themselves. Knows no app.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import ResolverMatch, reverse

from console.accounts.models import Role, User
from console.accounts.permissions import Somebody, View, allows, allows_somewhere


@dataclass(frozen=True, slots=True)
class Thing:
    """Something of a team's (see permissions.Owned)."""

    team_id: int | None


Find = Callable[[str], Thing | None]
Names = Callable[[User], Collection[str]]

NO_RIGHT = (
    "Your account has no right here yet. Ask an admin of this console for a role, or an admin of "
    "a team to take you in."
)


@dataclass(frozen=True, slots=True)
class GateKind:
    """`find(name)`: the thing, None when there is none of that name. `names(user)`: of all the user
    may look at. `list_url`: the name of the page to go to from a page whose thing has gone."""

    find: Find
    names: Names
    list_url: str


_kinds: dict[str, GateKind] = {}
_SUBJECT = "_subject_of_the_gate"
_CONVERTED = re.compile(r"<(\w+):(\w+)>")


def register(converter: str, kind: GateKind) -> None:
    """Called from AppConfig.ready."""
    _kinds[converter] = kind


def find(kind: str, name: str) -> Thing | None:
    """By the kind's word, such as "endpoint"; None also for a kind nobody registered."""
    return _kinds[kind].find(name) if kind in _kinds else None


def about(match: ResolverMatch | None) -> tuple[GateKind, str] | None:
    """The kind and the name in this route; None when it is about nothing of a team's."""
    for converter, parameter in _CONVERTED.findall(match.route if match else ""):
        if converter in _kinds and match is not None:
            return _kinds[converter], str(match.kwargs[parameter])
    return None


def shown(words: Sequence[str], user: Somebody) -> list[str]:
    """Of such words as "endpoint demo" those about what the user may know of; the others as a
    number, for "nobody" would be a lie."""
    if user is None or allows(user, Role.VIEWER):
        return list(words)
    seen = {
        f"{word} {name}"
        for word, kind in _kinds.items()
        for name in (kind.names(user) if isinstance(user, User) else ())
    }
    kept = [one for one in words if one in seen or one.partition(" ")[0] not in _kinds]
    hidden = len(words) - len(kept)
    return [*kept, f"{hidden} of other teams"] if hidden else kept


def subject(request: HttpRequest) -> Thing | None:
    """The thing this request is about, asked for once."""
    kept = vars(request)  # a request is where what was asked for it is kept
    if _SUBJECT not in kept:
        found = about(request.resolver_match)
        kept[_SUBJECT] = found[0].find(found[1]) if found else None
    thing: Thing | None = kept[_SUBJECT]
    return thing


def forget(request: HttpRequest) -> None:
    """Ask anew: a long request outlives what was true when it began."""
    vars(request).pop(_SUBJECT, None)


def check(request: HttpRequest, user: User) -> None:
    """Http404 when the request is about a thing the user may not know of; PermissionDenied when
    the user may know of nothing."""
    if allows(user, Role.VIEWER):
        return
    if about(request.resolver_match) is None:
        if not allows_somewhere(user, Role.VIEWER):
            raise PermissionDenied(NO_RIGHT)
        return
    thing = subject(request)
    if thing is None or not allows(user, Role.VIEWER, of=thing):
        raise Http404


class GateMiddleware:
    """For pages. REST views know who calls only later, and ask in their permission class."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: View, _args: object, _kwargs: object
    ) -> HttpResponseBase | None:
        user = request.user
        if not isinstance(user, User) or hasattr(view, "cls") or _about_oneself(view):
            return None
        try:
            check(request, user)
        except Http404:
            found = about(request.resolver_match)
            if found and request.method == "GET" and request.headers.get("HX-Request") == "true":
                # A page whose thing has gone while somebody watched.
                return HttpResponse(headers={"HX-Redirect": reverse(found[0].list_url)})
            raise
        return None


def _about_oneself(view: View) -> bool:
    """Login, profile and the like: whoever has an account may."""
    if not getattr(view, "login_required", True) or getattr(view, "needs_no_right", False):
        return True
    return f"{view.__module__}.".startswith(tuple(settings.PAGES_ABOUT_ONESELF))
