"""Notification status for pages and REST: who delivers alerts, and whether that works.

If nothing delivers alerts, the status states the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from console.system.rounds import Round
from console.system.rounds import RoundState as Doing
from dashboards.alerts.notify.dispatcher import NO_PROMETHEUS, PROMETHEUS_UNREACHABLE
from dashboards.alerts.notify.models import Delivery, DeliveryState, Dispatch, Receiver
from dashboards.prometheus import connections

_LATE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class NotificationStatus:
    """`trouble` is empty while alerts are read and delivered. `elsewhere`: metrics sources whose
    alerts an Alertmanager delivers.
    """

    looked_at: datetime | None
    waiting: int
    failed: int
    trouble: str = ""
    remedy: str = ""
    doing: Doing = Doing.WORKING
    elsewhere: tuple[str, ...] = ()


def notification_status() -> NotificationStatus:
    now = timezone.now()
    row = Dispatch.objects.filter(pk=1).first()
    waiting = Q(state=DeliveryState.WAITING)
    failed = Q(state=DeliveryState.FAILED, test=False, created_at__gt=now - timedelta(days=1))
    counts = Delivery.objects.aggregate(
        waiting=Count("pk", filter=waiting), failed=Count("pk", filter=failed)
    )
    elsewhere = _elsewhere()
    doing, trouble, remedy = _trouble(row, now, bool(elsewhere))
    counted = row.looked_at if row else None, counts["waiting"], counts["failed"]
    return NotificationStatus(*counted, trouble, remedy, doing, elsewhere)


def _trouble(row: Dispatch | None, now: datetime, elsewhere: bool) -> tuple[Doing, str, str]:
    if row is None or row.looked_at is None or now - row.looked_at > _LATE:
        return (
            Doing.LATE,
            "Nobody looks for alerts: the console's background worker does not run.",
            "Look at System for the worker and the timetable (beat).",
        )
    if row.reason == NO_PROMETHEUS:
        return (
            Doing.IDLE,
            "There is no Prometheus to ask, so nobody is told of anything.",
            "Add a metrics source, or set PROMETHEUS_URL.",
        )
    if row.reason == PROMETHEUS_UNREACHABLE:
        return (
            Doing.FAILING,
            f"Whether alerts fire is not known. {row.message}",
            "Receivers are told so after two minutes; nothing that fired is taken for ended.",
        )
    if not elsewhere and not _receiving().exists():
        return Doing.IDLE, "No alert receivers configured.", "Add a receiver, or give one a route."
    return Doing.WORKING, "", ""


def deliverers() -> str:
    """Return who delivers alerts now: the console's receivers, Alertmanagers, both or nobody."""
    count = _receiving().count()
    found = [f"{count} receiver{'s' if count != 1 else ''} of the console"] if count else []
    found += [f"Alertmanager of {source}" for source in _elsewhere()]
    return ", ".join(found) or "No alert receivers configured"


def _receiving() -> QuerySet[Receiver]:
    return Receiver.objects.filter(enabled=True, routes__isnull=False).distinct()


def _elsewhere() -> tuple[str, ...]:
    return tuple(one.source for one in connections.alertmanagers())


def as_round() -> Round:
    found = notification_status()
    owed = f"Messages that wait: {found.waiting}; not to be sent in the last day: {found.failed}."
    purpose = "Looks every ten seconds which alerts fire, and sends what receivers are owed"
    text = found.trouble or owed
    return Round("alerts", purpose, found.doing, found.looked_at, text, found.remedy)
