"""Routes of alerts to receivers: validate, write, record. Admins only."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.db import transaction
from rest_framework import serializers

from console.accounts.permissions import require
from console.api.bodies import read_body
from console.audit.record import diff, record
from console.core.errors import expect_generation
from console.web.forms import MONOSPACE
from dashboards.alerts.alertmanager import selectors, tasks
from dashboards.alerts.alertmanager.models import Receiver, Route
from dashboards.alerts.fields import MATCHERS, DurationField, LabelNamesField, MatchersField

_DAY = 86400


class RouteFields(serializers.Serializer[Route]):
    """What people set of a route; intervals are sent and shown as Prometheus durations."""

    receiver = serializers.SlugRelatedField(
        slug_field="name",
        queryset=Receiver.objects.all(),
        error_messages={"does_not_exist": "There is no receiver {value}."},
    )
    matchers = MatchersField(
        source="conditions",
        required=False,
        help_text=f"Leave empty for all alerts. {MATCHERS} "
        'team="research" stands for the endpoints of that team.',
        style={"rows": 3, **MONOSPACE},
    )
    group_by = LabelNamesField(
        required=False,
        initial=["alertname", "endpoint"],
        help_text="Alerts with equal values of these labels share one notification.",
    )
    group_wait = DurationField(
        *(0, 3600),
        source="wait_s",
        required=False,
        initial="30s",
        help_text="Delay of the first notification of a group.",
    )
    group_interval = DurationField(
        *(10, _DAY),
        source="interval_s",
        required=False,
        initial="5m",
        help_text="Delay before changes of a group are sent.",
    )
    repeat_interval = DurationField(
        *(60, 30 * _DAY),
        source="repeat_s",
        required=False,
        initial="4h",
        help_text="Repetition while alerts keep firing.",
    )


FIELDS: Final = tuple(RouteFields().fields)


def create(actor: Any, data: Any) -> Route:
    require(actor, "admin")
    made = Route(group_by=["alertname", "endpoint"])
    _set(made, data)
    with transaction.atomic():
        made.save(force_insert=True)
        record(actor, "create", f"alert-route/{made.pk}", facts(made))
        tasks.sync.nudge()
    return made


def change(actor: Any, pk: UUID, data: Any, *, expected_generation: int | None = None) -> Route:
    require(actor, "admin")
    with transaction.atomic():
        row = _locked(pk, expected_generation)
        before = facts(row)
        _set(row, data, partial=True)
        row.generation += 1
        row.save()
        changes = diff(before, facts(row))
        record(actor, "update", f"alert-route/{pk}", changes)
        tasks.sync.nudge()
    return row


def delete(actor: Any, pk: UUID, *, expected_generation: int | None = None) -> None:
    require(actor, "admin")
    with transaction.atomic():
        row = _locked(pk, expected_generation)
        record(actor, "delete", f"alert-route/{pk}", facts(row))
        row.delete()
        tasks.sync.nudge()


def facts(route: Route) -> dict[str, Any]:
    return dict(RouteFields(route).data)


def _set(route: Route, data: Any, *, partial: bool = False) -> None:
    """Write the values to the row; raise `Refused` with all problems."""
    for name, value in read_body(RouteFields, data, partial=partial).items():
        setattr(route, name, value)


def _locked(pk: UUID, expected: int | None) -> Route:
    route = selectors.get_or_refuse(Route.objects.select_for_update(no_key=True), "route", pk=pk)
    expect_generation("This route", route.generation, expected)
    return route
