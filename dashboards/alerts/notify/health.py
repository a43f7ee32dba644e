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
from dashboards.prometheus.sources import selectors as connections

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
            "Alerts are not processed: the console's background worker is not running.",
            "Check worker and scheduler (beat) under System.",
        )
    if row.reason == NO_PROMETHEUS:
        return (
            Doing.IDLE,
            "No Prometheus configured: no notifications are sent.",
            "Add a metrics source, or set PROMETHEUS_URL.",
        )
    if row.reason == PROMETHEUS_UNREACHABLE:
        return (
            Doing.FAILING,
            f"Alert state unknown. {row.message}",
            "Receivers are notified after 2 minutes. Firing alerts are not resolved meanwhile.",
        )
    if not elsewhere and not _receiving().exists():
        return Doing.IDLE, "No alert receivers configured.", "Add a receiver and a route."
    return Doing.WORKING, "", ""


def deliverers() -> str:
    """Return the senders of alerts: the console's receivers, Alertmanagers, both or none."""
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
    owed = f"Pending notifications: {found.waiting}; failed in the last 24 h: {found.failed}."
    purpose = "Checks for firing alerts every 10 s and sends notifications"
    text = found.trouble or owed
    return Round("alerts", purpose, found.doing, found.looked_at, text, found.remedy)
