"""Around every answer under /api/: an ETag for what was read, and 304 for who has it already."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

from console.api import preconditions

PREFIX = "/api/"


class ConditionalMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not request.path.startswith(PREFIX):
            return response
        # What was just written is tagged too: it is where the next change starts from.
        if 200 <= response.status_code < 300 and not response.streaming:
            preconditions.tag(response)
        if request.method in ("GET", "HEAD") and response.status_code == 200:
            return preconditions.unchanged(response, request.headers.get("If-None-Match", ""))
        return response
