"""A session's life between its first and its last request."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

from console.signon.sessions import SessionStore

GetResponse = Callable[[HttpRequest], HttpResponseBase]


class SessionUseMiddleware:
    """Notes that a person used their session. A page that refreshes itself in a forgotten tab
    does not count, or no session would ever be idle."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        session = request.session
        if isinstance(session, SessionStore) and _by_a_person(request):
            session.touch()
        return response


def _by_a_person(request: HttpRequest) -> bool:
    if request.method not in ("GET", "HEAD"):
        return True
    headers = request.headers
    stream = "text/event-stream" in headers.get("Accept", "")
    return not stream and headers.get("HX-Request") != "true"
