"""What ties endpoints to cache tiers: who uses one, and whom to tell when it moves."""

from __future__ import annotations

from typing import Any

from cachetier import usage
from cachetier.choices import DEFAULT_TIER
from cachetier.signals import tier_changed
from console.reconcile import mark_due
from endpoints import selectors
from endpoints.models import EndpointStatus
from endpoints.tasks import reconcile_endpoint


def connect() -> None:
    """Called once, when the application is ready."""
    usage.register(users_of)
    tier_changed.connect(look_again, dispatch_uid="endpoints.tiers")


def users_of(tier_name: str) -> list[str]:
    if tier_name != DEFAULT_TIER:
        return []
    return [f"endpoint {endpoint.name}" for endpoint in selectors.on_cache_tier()]


def look_again(tier: str, **_facts: Any) -> None:
    """Nudge the endpoints which use the tier; the sweep would find them seconds later."""
    if tier != DEFAULT_TIER:
        return
    for endpoint in selectors.on_cache_tier():
        mark_due(EndpointStatus, str(endpoint.pk))
        reconcile_endpoint.nudge(str(endpoint.pk))
