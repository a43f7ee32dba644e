"""Queries on silences, receivers, routes and deliveries for pages and the API.

Rows about one endpoint are visible to users who may see that endpoint, all others to users with a
role on the whole platform.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import Model, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.urls import reverse
from django.utils import timezone

from console.accounts.permissions import Somebody, allows_in_any_team, filter_visible
from console.core.errors import Problem, Refused
from console.web.shell.search import MAX_HITS_PER_FINDER, Hit
from dashboards.alerts.notify.models import Delivery, Receiver, Route, Silence
from dashboards.alerts.notify.protocol.alert import TEAM
from dashboards.alerts.notify.protocol.alertmanager_config import (
    AlertmanagerExport,
    MailFacts,
    ReceiverFacts,
    RouteFacts,
)
from dashboards.alerts.notify.protocol.matchers import matches
from endpoints import selectors as endpoints

Row = TypeVar("Row", bound=Model)
SILENCE_STATES = ("active", "pending", "expired")


def silences(viewer: Somebody) -> QuerySet[Silence]:
    """Return the visible silences, latest first."""
    rows = Silence.objects.select_related("endpoint")
    return filter_visible(rows, viewer, "endpoint__team").order_by("-created_at", "-id")


def silences_in_state(state: str, now: datetime | None = None) -> Q:
    at = now or timezone.now()
    if state == "expired":
        return Q(ends_at__lte=at)
    started = Q(starts_at__lte=at)
    return Q(ends_at__gt=at) & (started if state == "active" else ~started)


def silence(viewer: Somebody, pk: UUID) -> Silence:
    return get_or_refuse(silences(viewer), "silence", pk=pk)


def active_silences() -> list[Silence]:
    """Return all active silences, for the dispatcher."""
    return list(Silence.objects.filter(silences_in_state("active")))


def muting_of(viewer: Somebody, alerts: Sequence[Mapping[str, str]]) -> list[Silence | None]:
    """Return for each alert the visible active silence or acknowledgement that mutes it."""
    rows = list(silences(viewer).filter(silences_in_state("active"))) if alerts else []
    team = teams() if rows else {}
    found = []
    for labels in alerts:
        whose = team.get(labels.get("endpoint", ""), "")
        every = {**labels, **({TEAM: whose} if whose else {})}
        found.append(next((one for one in rows if matches(one.conditions, every)), None))
    return found


def remote_ids() -> list[str]:
    """Return the Alertmanager ids of our silences."""
    rows = Silence.objects.exclude(remote={}).order_by("-created_at")
    return [one for row in rows.values_list("remote", flat=True)[:2000] for one in row.values()]


def alertmanager_export() -> AlertmanagerExport:
    of_team: dict[str, list[str]] = {}
    for name, team in teams().items():
        of_team.setdefault(team, []).append(name)
    found = [
        ReceiverFacts(
            one.name,
            one.kind,
            one.shown,
            tuple(one.to),
            any(route.send_resolved for route in one.routes.all()),
        )
        for one in receivers().prefetch_related("routes")
    ]
    shown_routes = [
        RouteFacts(
            one.receiver.name,
            one.conditions,
            tuple(one.group_by),
            one.wait_s,
            one.interval_s,
            one.repeat_s,
        )
        for one in routes().filter(receiver__enabled=True)
    ]
    mail = settings.MAIL
    where = f"{mail.host}:{mail.port}" if mail.host else ""
    facts = MailFacts(where, mail.sender, mail.security != "none", mail.user)
    return AlertmanagerExport(found, shown_routes, of_team, facts)


def teams() -> Mapping[str, str]:
    """Return the team slug of each endpoint by endpoint name."""
    rows = endpoints.endpoints().exclude(team=None).values_list("name", "team__slug")
    return dict(rows)


def receivers() -> QuerySet[Receiver]:
    return Receiver.objects.order_by("name")


def existing_receivers(names: Collection[str], _viewer: Any = None) -> Collection[str]:
    return set(receivers().filter(name__in=names).values_list("name", flat=True))


def find_receivers(viewer: Any, text: str) -> Sequence[Hit]:
    """Find receivers for the search."""
    if not allows_in_any_team(viewer, "viewer"):
        return []
    rows = receivers().filter(name__icontains=text)[:MAX_HITS_PER_FINDER]
    return [
        Hit("alert receiver", one.name, reverse("notify:receiver", args=[one.name]), "send")
        for one in rows
    ]


def receivers_with_latest() -> list[tuple[Receiver, Delivery | None]]:
    """Return receivers with routes and latest delivery, in three queries."""
    routes = Prefetch("routes", Route.objects.select_related("receiver"))
    latest = Delivery.objects.filter(receiver=OuterRef("pk")).order_by("-created_at")
    rows = receivers().prefetch_related(routes).annotate(last=Subquery(latest.values("pk")[:1]))
    found = [(one, one.last) for one in rows]
    sent = Delivery.objects.defer("body").in_bulk([last for _, last in found if last])
    return [(one, sent.get(last)) for one, last in found]


def receiver(name: str) -> Receiver:
    return get_or_refuse(Receiver.objects.all(), "receiver", name=name)


def routes() -> QuerySet[Route]:
    return Route.objects.select_related("receiver").order_by("created_at", "id")


def route(pk: UUID) -> Route:
    return get_or_refuse(routes(), "route", pk=pk)


def deliveries(viewer: Somebody) -> QuerySet[Delivery]:
    rows = Delivery.objects.select_related("endpoint")
    return filter_visible(rows, viewer, "endpoint__team").order_by("-created_at", "-id")


def delivery(viewer: Somebody, pk: UUID) -> Delivery:
    return get_or_refuse(deliveries(viewer), "delivery", pk=pk)


def get_or_refuse(rows: QuerySet[Row], what: str, **key: Any) -> Row:
    """Return the only row with the key; raise `Refused` (404)."""
    row = rows.filter(**key).first()
    if row is None:
        text, remedy = f"Unknown {what}.", "Select one from the list."
        named = str(next(iter(key.values())))[:80]
        raise Refused(Problem(what, named, text, remedy, "not_found"), status_code=404)
    return row
