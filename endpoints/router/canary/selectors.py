"""Reads of canaries: the latest of an endpoint, its result, and the settings for its routers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from endpoints.lifecycle.components import EndpointFacts
from endpoints.models import Endpoint
from endpoints.router.models import Canary, CanaryState
from routing.analysis.canary import CanaryResult, add_arms, judge, read_arms

LISTED = 20


def latest(endpoint: Endpoint) -> Canary | None:
    """Return the running canary, else the last one."""
    return Canary.objects.filter(endpoint=endpoint).select_related("started_by").first()


def earlier(endpoint: Endpoint) -> QuerySet[Canary]:
    """Return the ended canaries, latest first, without their data."""
    rows = Canary.objects.filter(endpoint=endpoint).exclude(state=CanaryState.RUNNING)
    return rows.defer("reports", "history").select_related("started_by")[:LISTED]


def ran_between(endpoint: Endpoint, begin: datetime, end: datetime) -> QuerySet[Canary]:
    ran = Canary.objects.filter(endpoint=endpoint, started_at__lt=end)
    return ran.filter(Q(ended_at=None) | Q(ended_at__gt=begin)).defer("reports", "history")


def result(canary: Canary) -> CanaryResult:
    """Return the comparison of the arms from all that routers reported."""
    return judge(add_arms(map(read_arms, canary.reports.values())), canary.routers)


def strategies(canary: Canary) -> dict[str, str]:
    return {"control": canary.control, "candidate": canary.strategy}


def router_settings(endpoint: EndpointFacts) -> dict[str, Any] | None:
    """Return the router settings of the running canary; None also if the endpoint's strategy was
    changed since its start, which ends it (canary.collection).
    """
    running = Canary.objects.filter(endpoint__name=endpoint.name, state=CanaryState.RUNNING)
    canary = running.defer("reports", "history").first()
    if canary is None or canary.control != endpoint.spec.routing.effective_strategy:
        return None
    return build_settings(canary)


def build_settings(canary: Canary) -> dict[str, Any]:
    return {
        "id": str(canary.pk),
        "strategy": canary.strategy,
        "share": canary.share,
        "session_key": canary.session_key,
        "settle_s": canary.settle_s,
    }
