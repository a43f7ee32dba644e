"""Session middleware: record use, require second factor and confirmation."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from console.accounts.models import User
from console.signon import confirmation, flow
from console.signon.models import SessionStore

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class SessionUseMiddleware:
    """Record session use.

    Automatic refreshes do not count, since a forgotten tab would keep its session from idling out.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        session = request.session
        if isinstance(session, SessionStore) and _is_user_activity(request):
            session.touch()
        return response


class LoginDemandsMiddleware:
    """Require a second factor by policy, and confirmation of sensitive actions.

    Runs after authentication and only for session logins.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: object, _args: object, _kwargs: object
    ) -> HttpResponseBase | None:
        user = request.user
        program = hasattr(view, "cls")  # REST view
        if not isinstance(user, User) or _uses_token(request):
            return None
        if not program and not getattr(view, "login_required", True):
            return None
        if not _is_login_page(request) and flow.must_have_factor(request, user):
            return (
                confirmation.refuse_program(confirmation.FACTOR) if program else _to_setup(request)
            )
        if confirmation.is_demanded(request):
            return (
                confirmation.refuse_program(confirmation.CONFIRM_FIRST)
                if program
                else confirmation.render_form(request)
            )
        return None


def _uses_token(request: HttpRequest) -> bool:
    """Return whether the REST API authenticates by token and ignores the session."""
    kind, _, _ = request.headers.get("Authorization", "").partition(" ")
    return kind.lower() == "bearer" and request.path.startswith("/api/")


def _is_login_page(request: HttpRequest) -> bool:
    match = request.resolver_match
    return match is not None and (match.app_name == "signon" or match.view_name.startswith("mfa_"))


def _to_setup(request: HttpRequest) -> HttpResponseBase:
    if request.headers.get("HX-Request") == "true":
        return HttpResponse(status=401, headers={"HX-Redirect": reverse("mfa_activate_totp")})
    return redirect("mfa_activate_totp")


def _is_user_activity(request: HttpRequest) -> bool:
    if request.method not in ("GET", "HEAD"):
        return True
    headers = request.headers
    stream = "text/event-stream" in headers.get("Accept", "")
    return not stream and headers.get("HX-Request") != "true"
