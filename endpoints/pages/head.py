"""Helpers of endpoint pages: lookup by name, and the page head without further queries."""

from __future__ import annotations

import re
from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone

from endpoints import selectors
from endpoints.choices import SETTLED, Phase
from endpoints.models import Endpoint
from endpoints.refusals import NotFoundError

UNSETTLED_POLL_S = 2
SETTLED_POLL_S = 5
STALE_S = 90
"""At least two reconcile intervals of a running console worker."""
# int() raises for thousands of digits.
WHOLE = re.compile(r"-?[0-9]{1,18}")
TROUBLED = frozenset({Phase.DEGRADED, Phase.FAILED})


def head_context(endpoint: Endpoint, *, brief: bool = False) -> dict[str, Any]:
    status = endpoint.status
    return {
        "endpoint": endpoint,
        "status": status,
        "brief": brief,
        "poll_s": poll_s(endpoint),
        "wanted_replicas": selectors.wanted_replicas(endpoint),
        "troubled": endpoint.shown_phase in TROUBLED,
        "stale": is_stale(endpoint),
    }


def poll_s(endpoint: Endpoint) -> int:
    """Return the polling interval (s), shorter during transitions."""
    settled = endpoint.shown_phase in SETTLED and endpoint.current
    return SETTLED_POLL_S if settled else UNSETTLED_POLL_S


def is_stale(endpoint: Endpoint) -> bool:
    """Return whether the last observation is overdue."""
    seen_s = (timezone.now() - endpoint.status.updated_at).total_seconds()
    return seen_s > STALE_S


def find_endpoint(name: str) -> Endpoint:
    try:
        return selectors.get(name)
    except NotFoundError as error:
        raise Http404(str(error)) from None


def generation_of(request: HttpRequest) -> int | None:
    """Return the generation shown on the page; None disables the check."""
    text = request.POST.get("generation", "")
    return int(text) if WHOLE.fullmatch(text) else None
