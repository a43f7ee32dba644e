"""Queries on receivers and routes for pages, REST and the configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import Model, QuerySet
from django.urls import reverse

from console.accounts.permissions import allows_in_any_team
from console.core.errors import Problem, Refused
from console.vault import store
from console.web.shell.search import MAX_HITS_PER_FINDER, Hit
from dashboards.alerts.alertmanager.config.document import (
    AlertmanagerConfig,
    MailServer,
    ReceiverConfig,
    RouteConfig,
)
from dashboards.alerts.alertmanager.models import ConfigFile, Receiver, Route
from endpoints import selectors as endpoints

Row = TypeVar("Row", bound=Model)


def config() -> AlertmanagerConfig:
    """Return the configuration of enabled receivers and their routes, without secrets. E-mail
    receivers need an SMTP server.
    """
    of_team: dict[str, list[str]] = {}
    for name, team in teams().items():
        of_team.setdefault(team, []).append(name)
    mail = settings.MAIL
    where = f"{mail.host}:{mail.port}" if mail.host else ""
    server = MailServer(where, mail.sender, mail.security != "none", mail.user, mail.password)
    receivers = [
        ReceiverConfig(
            enabled_receiver.name,
            enabled_receiver.kind,
            enabled_receiver.config,
            tuple(enabled_receiver.secrets),
            enabled_receiver.send_resolved,
        )
        for enabled_receiver in enabled_receivers()
        if where or enabled_receiver.kind != "email"
    ]
    names = {receiver.name for receiver in receivers}
    shown_routes = [
        RouteConfig(
            route.receiver.name,
            route.conditions,
            tuple(route.group_by),
            route.wait_s,
            route.interval_s,
            route.repeat_s,
        )
        for route in routes()
        if route.receiver.name in names
    ]
    return AlertmanagerConfig(receivers, shown_routes, of_team, server)


def config_file() -> ConfigFile | None:
    return ConfigFile.objects.filter(pk=1).first()


def enabled_receivers() -> QuerySet[Receiver]:
    return receivers().filter(enabled=True)


def teams() -> Mapping[str, str]:
    """Return the team slug of each endpoint by endpoint name."""
    rows = endpoints.endpoints().exclude(team=None).values_list("name", "team__slug")
    return dict(rows)


def team_ids() -> Mapping[str, int]:
    """Return the team of each endpoint by endpoint name."""
    rows = endpoints.endpoints().exclude(team=None).values_list("name", "team_id")
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
        Hit("alert receiver", row.name, reverse("notify:receiver", args=[row.name]), "send")
        for row in rows
    ]


def stored_secrets() -> dict[tuple[str, str], str]:
    """Return the secrets of enabled receivers by receiver and field; "" if unreadable."""
    return {
        (row.name, field): store.get(row.secret_name(field))
        for row in enabled_receivers()
        for field in row.secrets
    }


def receiver(name: str) -> Receiver:
    return get_or_refuse(Receiver.objects.all(), "receiver", name=name)


def routes() -> QuerySet[Route]:
    return Route.objects.select_related("receiver").order_by("created_at", "id")


def route(pk: UUID) -> Route:
    return get_or_refuse(routes(), "route", pk=pk)


def get_or_refuse(rows: QuerySet[Row], what: str, **key: Any) -> Row:
    """Return the only row with the key; raise `Refused` (404)."""
    row = rows.filter(**key).first()
    if row is None:
        text, remedy = f"Unknown {what}.", "Select one from the list."
        named = str(next(iter(key.values())))[:80]
        raise Refused(Problem(what, named, text, remedy, "not_found"), status_code=404)
    return row
