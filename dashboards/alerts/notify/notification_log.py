"""Notifications sent for an interval of an alert, or the reason why none was sent.

Bounded: at most `MOST` deliveries of the range are read. Rows that the viewer may not see only
contribute a reason without names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from console.accounts.permissions import Somebody
from dashboards.alerts.notify import alertmanagers, selectors
from dashboards.alerts.notify.models import Delivery, DeliveryState, Receiver, Silence
from dashboards.alerts.notify.protocol import matchers
from dashboards.alerts.notify.protocol.alert import TEAM
from dashboards.alerts.notify.protocol.message import RESOLVED
from dashboards.prometheus.sources import selectors as connections

MOST: Final = 500
KEPT: Final = timedelta(days=30)
_LATE: Final = timedelta(minutes=2)  # an alert counts as resolved after 60 s of absence


@dataclass(frozen=True, slots=True)
class AlertSpan:
    """Alert and the time it fired, exact to `step_s`. `labels`: of each alert in it."""

    rule: str
    endpoint: str
    start: datetime
    end: datetime
    step_s: int
    labels: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Notification:
    """`resolved`: reports the end of the alert."""

    delivery: Delivery
    resolved: bool

    @property
    def outcome(self) -> str:
        return str(DeliveryState(self.delivery.state).label)


@dataclass(frozen=True, slots=True)
class MissingReason:
    """`silence`: the visible silence that suppressed the notification."""

    text: str
    silence: Silence | None = None


def read_deliveries(viewer: Somebody, since: datetime) -> list[Delivery]:
    """Return the visible deliveries since then, the oldest first, tests excluded."""
    rows = selectors.deliveries(viewer).filter(created_at__gte=since, test=False)
    return sorted(rows[:MOST], key=lambda one: one.created_at)


def select_notifications(rows: Sequence[Delivery], span: AlertSpan) -> list[Notification]:
    return [
        Notification(row, one["status"] == RESOLVED)
        for row in rows
        if (one := _entry(row, span)) is not None
    ]


def _entry(row: Delivery, span: AlertSpan) -> Mapping[str, Any] | None:
    """Return the alert of the span in the message, the resolved one first."""
    slack = timedelta(seconds=span.step_s)
    found = None
    for one in row.body["alerts"]:
        labels = one["labels"]
        if labels.get("alertname") != span.rule or labels.get("endpoint", "") != span.endpoint:
            continue
        resolved = one["status"] == RESOLVED
        moment = (parse_datetime(one["endsAt"]) if resolved else None) or row.created_at
        if span.start - slack <= moment <= span.end + slack + _LATE:
            if resolved:
                return one
            found = one
    return found


def list_muting(viewer: Somebody, span: AlertSpan) -> list[Silence]:
    """Return the visible silences and acknowledgements of the alert in its time, oldest first."""
    return sorted(_muting(selectors.silences(viewer), span), key=lambda one: one.created_at)


def _muting(rows: QuerySet[Silence], span: AlertSpan) -> list[Silence]:
    found = rows.filter(starts_at__lte=span.end, ends_at__gte=span.start).order_by("created_at")
    labels = _with_team(span)
    return [
        one
        for one in found[:MOST]
        if any(matchers.matches(one.conditions, each) for each in labels)
    ]


def _with_team(span: AlertSpan) -> list[Mapping[str, str]]:
    team = selectors.teams().get(span.endpoint, "")
    return [{**one, **({TEAM: team} if team else {})} for one in span.labels]


def explain_missing(viewer: Somebody, span: AlertSpan) -> list[MissingReason]:
    """Return why no notification of the alert is recorded, the most likely reason first."""
    if alertmanagers.alertmanager_delivers()(span.endpoint):
        names = ", ".join(one.source for one in connections.alertmanagers())
        text = f"The Alertmanager of {names} delivers this alert. The console has no record of it."
        return [MissingReason(text)]
    visible = list_muting(viewer, span)
    if visible:
        return [MissingReason(_muted(one), one) for one in visible]
    if _muting(Silence.objects.all(), span):
        return [MissingReason("Suppressed by a platform-wide silence.")]
    if span.end < timezone.now() - KEPT:
        return [MissingReason("Notifications are kept for 30 days.")]
    return [MissingReason(_unrouted(span))]


def _muted(one: Silence) -> str:
    verb = "Acknowledged" if one.acknowledges else "Silenced"
    note = f": {one.comment}" if one.comment else ""
    return f"{verb} by {one.author}{note}."


def _unrouted(span: AlertSpan) -> str:
    if not Receiver.objects.exists():
        return "No alert receivers configured."
    labels = _with_team(span)
    routes = [
        one
        for one in selectors.routes()
        if any(matchers.matches(one.conditions, each) for each in labels)
    ]
    if not routes:
        return "No route matches this alert."
    if not any(one.receiver.enabled for one in routes):
        return "All receivers with a matching route are disabled."
    if all(one.created_at > span.end for one in routes):
        return "The matching route was created later."
    wait = min(one.wait_s for one in routes)
    if span.end - span.start < timedelta(seconds=wait + span.step_s):
        return f"Resolved before the group wait of {wait} s had passed."
    return "Nothing recorded. The background worker may have been down: check System."


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
