"""Endpoints that use cache tiers, and their nudge when a tier changes."""

from __future__ import annotations

from typing import Any

from cachetier import selectors as cachetiers
from cachetier.signals import tier_changed
from console.core import uses
from endpoints import actions, selectors


def connect() -> None:
    uses.register("cache-tier", users)
    tier_changed.connect(nudge_users, dispatch_uid="endpoints.placement.cache_tiers")


def users() -> dict[str, list[str]]:
    users_by_tier: dict[str, list[str]] = {}
    for endpoint in selectors.on_cache_tier():
        users_by_tier.setdefault(endpoint.parsed.cache.l2.tier, []).append(
            f"endpoint {endpoint.name}"
        )
    return users_by_tier


def nudge_users(tier: str, **_facts: Any) -> None:
    for endpoint in selectors.on_cache_tier():
        if endpoint.parsed.cache.l2.tier == tier:
            actions.nudge(endpoint)


def tier_context(name: str) -> dict[str, Any] | None:
    tier = cachetiers.get_tier(name)
    if tier is None:
        return None
    return {"tier": tier, "numbers": cachetiers.numbers(tier), "nodes": list(tier.nodes.all())}
