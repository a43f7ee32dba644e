"""Requests a minute, per caller: enough for any honest program, a wall for a loop gone wild.

Counted in this process's memory, so that no database write comes with a read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from console.web.server.client_address import client_address, network

if TYPE_CHECKING:  # DRF imports this module while it is itself being imported
    from rest_framework.views import APIView


class AnonymousThrottle(SimpleRateThrottle):
    scope = "anonymous"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:  # noqa: ARG002
        if request.user and request.user.is_authenticated:
            return None
        return f"throttle_anonymous_{network(client_address(request))}"


class CallerThrottle(SimpleRateThrottle):
    scope = "caller"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:  # noqa: ARG002
        if not (request.user and request.user.is_authenticated):
            return None
        return f"throttle_caller_{request.user.pk}"
