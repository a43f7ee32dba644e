"""Head of an endpoint's pages: identity, phase, and staleness. No queries beyond endpoint and
status.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from endpoints import selectors
from endpoints.choices import SETTLED, Phase
from endpoints.models import Endpoint

UNSETTLED_POLL_S = 2
SETTLED_POLL_S = 5
STALE_S = 90
"""Every endpoint is looked at at least twice in this time while the console's worker lives."""
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
