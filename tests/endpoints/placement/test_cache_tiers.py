"""Use of cache tiers by endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from cachetier import actions as tiers
from cachetier.tier.spec import Refused
from console.accounts.models import User
from console.core import uses
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.models import EndpointStatus
from endpoints.placement import cache_tiers as ours
from endpoints.spec.endpoint_spec import SpecErrors, merge
from endpoints.tasks import reconcile_endpoint

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> User:
    return User.objects.create_user("olga", password="x", role="operator")


def on(data: dict[str, Any], name: str, tier: str) -> dict[str, Any]:
    return merge(data, {"name": name, "cache.l2.enabled": True, "cache.l2.tier": tier})


def test_used_tier_cannot_be_deleted_and_an_unused_one_can(
    data: dict[str, Any], operator: User
) -> None:
    tiers.create(operator, "chat", {})
    tiers.create(operator, "spare", {})
    actions.create(SYSTEM, on(data, "one", "chat"))
    actions.create(SYSTEM, merge(data, {"name": "two"}))
    assert uses.by_name("cache-tier") == {"chat": ["endpoint one"]}
    with pytest.raises(Refused, match="endpoint one"):
        tiers.delete(operator, "chat")
    tiers.delete(operator, "spare")
    with pytest.raises(SpecErrors, match="Unknown cache tier 'spare'"):
        actions.create(SYSTEM, on(data, "three", "spare"))


def test_only_endpoints_of_the_changed_tier_are_reconciled(
    data: dict[str, Any], operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers.create(operator, "chat", {})
    one = actions.create(SYSTEM, on(data, "one", "chat"))
    actions.create(SYSTEM, on(data, "two", "default"))
    EndpointStatus.objects.update(due_at=None)
    requests: list[str] = []
    monkeypatch.setattr(reconcile_endpoint, "nudge", requests.append)
    ours.nudge_users("chat")
    assert requests == [str(one.pk)]
