"""Routes of alerts to receivers: validate, write, record. Admins only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from console.accounts.permissions import require
from console.audit.record import diff, record
from console.core.errors import Gathered, Problem, Refused, expect_generation
from dashboards.alerts.alertmanager import input_values, selectors, tasks
from dashboards.alerts.alertmanager.config import matchers as label_matchers
from dashboards.alerts.alertmanager.models import Route

FIELDS: Final = (
    *("receiver", "matchers", "group_by"),
    *("group_wait", "group_interval", "repeat_interval"),
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
GROUP_BY = ("alertname", "endpoint")
_DAY = 86400
# Field, column, default, minimum and maximum in seconds.
_TIMES: Final = (
    ("group_wait", "wait_s", 30, 0, 3600),
    ("group_interval", "interval_s", 300, 10, _DAY),
    ("repeat_interval", "repeat_s", 4 * 3600, 60, 30 * _DAY),
)


def create(actor: Any, data: Any) -> Route:
    require(actor, "admin")
    mapping = input_values.parse_mapping(data, FIELDS)
    made = Route(group_by=list(GROUP_BY))
    _take(made, mapping, new=True)
    with transaction.atomic():
        made.save(force_insert=True)
        record(actor, "create", f"alert-route/{made.pk}", facts(made))
        tasks.sync.nudge()
    return made


def change(actor: Any, pk: UUID, data: Any, *, expected_generation: int | None = None) -> Route:
    require(actor, "admin")
    mapping = input_values.parse_mapping(data, FIELDS)
    with transaction.atomic():
        row = _locked(pk, expected_generation)
        before = facts(row)
        _take(row, mapping)
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
    times = {
        name: input_values.format_duration(getattr(route, column)) for name, column, *_ in _TIMES
    }
    return {
        "receiver": route.receiver.name,
        "matchers": [str(condition) for condition in route.conditions],
        "group_by": list(route.group_by),
        **times,
    }


def _take(route: Route, given: Mapping[str, Any], *, new: bool = False) -> None:
    """Write the values to the row; raise `Refused` with all problems."""
    gathered = Gathered()
    receiver = gathered.take(
        input_values.parse_text, given, "receiver", 60, needed=new or "receiver" in given
    )
    if "matchers" in given:
        matchers = gathered.take(label_matchers.parse, given["matchers"]) or ()
        route.matchers = [matcher.data() for matcher in matchers]
    if "group_by" in given:
        route.group_by = gathered.take(_labels, given["group_by"]) or []
    for name, column, _default, low, high in _TIMES:
        now = getattr(route, column)
        setattr(
            route, column, gathered.take(input_values.parse_seconds, given, name, now, low, high)
        )
    gathered.end()
    if receiver:
        route.receiver = selectors.receiver(receiver)


def _labels(value: Any) -> list[str]:
    listed = re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else value
    good = isinstance(listed, list) and all(isinstance(label, str) for label in listed)
    labels = list(dict.fromkeys(filter(None, listed))) if good else []
    if not good or len(labels) > 10 or not all(_LABEL.fullmatch(label) for label in labels):
        remedy = "Enter at most 10 label names, such as alertname, endpoint."
        text = "Invalid grouping labels."
        raise Refused(Problem("group_by", value, text, remedy, "labels"))
    return labels


def _locked(pk: UUID, expected: int | None) -> Route:
    route = selectors.get_or_refuse(Route.objects.select_for_update(), "route", pk=pk)
    expect_generation("This route", route.generation, expected)
    return route
