"""Fleet status from the console's database: phases, problems, recent changes and setup steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from console.accounts import selectors as accounts
from console.accounts.permissions import Somebody, allows, allows_in_any_team
from console.audit import selectors as trail
from console.clusters import selectors as clusters
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors
from endpoints.choices import Phase
from endpoints.models import Endpoint
from endpoints.pages.head import STALE_S, TROUBLED
from endpoints.pages.list import query
from endpoints.selectors import FleetFacts

MAX_UNHEALTHY = 6
MAX_CHANGES = 6
A_DAY = timedelta(days=1)
# Phases shown with a count of zero, too.
ALWAYS_SHOWN = (Phase.FAILED, Phase.UNAVAILABLE, Phase.DEGRADED, Phase.READY)
_ENDPOINT = "endpoint/"


@dataclass(frozen=True, slots=True)
class SetupStep:
    title: str
    text: str
    done: bool
    url: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class RecentChange:
    event: Any
    url: str


def count_phases(fleet: FleetFacts) -> list[tuple[str, int]]:
    return [(str(phase), fleet.phases.get(str(phase), 0)) for phase in query.SEVERITY]


def list_unhealthy(viewer: Somebody, fleet: FleetFacts) -> tuple[list[Endpoint], int]:
    """Return the first Failed or Degraded endpoints, longest first, and their total number."""
    number = sum(fleet.phases.get(str(phase), 0) for phase in TROUBLED)
    if not number:
        return [], 0
    unhealthy = selectors.endpoints(viewer).filter(
        status__phase__in=[str(phase) for phase in TROUBLED], deleted_at__isnull=True
    )
    rows = list(unhealthy.order_by("-status__phase", "status__phase_since")[:MAX_UNHEALTHY])
    return rows, max(number, len(rows))


def list_recent_changes(viewer: Somebody, fleet: FleetFacts) -> list[RecentChange]:
    """Return the latest changes of a day; logins, which change nothing, are in the audit log."""
    events = trail.events_visible_to(viewer).filter(at__gte=timezone.now() - A_DAY)
    rows = list(events.exclude(verb__startswith="user.login")[:MAX_CHANGES])
    changed = {row.target.removeprefix(_ENDPOINT) for row in rows}
    urls = {
        f"{_ENDPOINT}{name}": reverse("endpoints:detail", args=[name])
        for name in changed.intersection(fleet.names)
    }
    return [RecentChange(row, urls.get(row.target, "")) for row in rows]


def find_overdue_reconcile(fleet: FleetFacts) -> datetime | None:
    """Return the time of the last reconcile pass if it is overdue, else None."""
    reconciled_at = fleet.reconciled_at
    if reconciled_at is None or (timezone.now() - reconciled_at).total_seconds() <= STALE_S:
        return None
    return reconciled_at


def list_setup_steps(viewer: Somebody, fleet: FleetFacts) -> Sequence[SetupStep]:
    names = clusters.names()
    own = settings.EMBERLINE.provisioner != "kubernetes"
    measured = connections.any_known()
    compute = f"Clusters: {', '.join(names[:3])}" if names else "Workers run on this machine."
    endpoints_url = reverse("endpoints:list")
    sees_sources = allows(viewer, "viewer")
    steps = [
        SetupStep(
            "Compute",
            compute if names or own else "Register a cluster for the workers.",
            bool(names) or own,
            reverse("clusters:list"),
            "Open clusters",
        ),
        SetupStep(
            "Metrics",
            "Dashboards read Prometheus."
            if measured
            else "No Prometheus configured: dashboards stay empty. Set PROMETHEUS_URL.",
            measured,
            reverse("metrics_sources:list") if sees_sources else "",
            "Open metrics sources",
        ),
        SetupStep(
            "First endpoint",
            "A model with its workers, router and caches. Start from a template.",
            bool(fleet.names),
            reverse("endpoints:new") if allows_in_any_team(viewer, "operator") else "",
            "Create endpoint",
        ),
        SetupStep(
            "First request",
            "The console sends a test request once the router is ready. Then send a prompt.",
            fleet.served,
            endpoints_url,
            "Open endpoints",
        ),
        SetupStep(
            "Inference key",
            "Create a key for each application on the endpoint's Access tab. It is shown once.",
            selectors.has_keys(viewer),
            endpoints_url,
            "Open endpoints",
        ),
    ]
    if allows(viewer, "admin"):
        text = "Create accounts and assign roles globally or per team."
        there = reverse("accounts:people")
        done_users = accounts.has_several_users()
        steps.append(SetupStep("Team members", text, done_users, there, "Open users"))
    return steps
