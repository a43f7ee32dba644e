"""Status of notifications for pages and REST: whether alerts reach receivers, else the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from console.system.rounds import Round
from console.system.rounds import RoundState as Doing
from dashboards.alerts.alertmanager import api_client, selectors
from dashboards.alerts.alertmanager.models import AlertWatch, ConfigState, Receiver
from dashboards.alerts.alertmanager.transitions import (
    ALERTMANAGER_UNREACHABLE,
    NO_PROMETHEUS,
    PROMETHEUS_UNREACHABLE,
)
from dashboards.prometheus.sources.selectors import OWN

_LATE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class NotificationStatus:
    """Whether alerts reach their receivers. `trouble` is empty while alerts reach receivers.
    `managed`: the console writes the configuration of its Alertmanager; `elsewhere`: metrics
    sources with one of their own.
    """

    looked_at: datetime | None
    managed: bool
    trouble: str = ""
    remedy: str = ""
    doing: Doing = Doing.WORKING
    elsewhere: tuple[str, ...] = ()


def notification_status() -> NotificationStatus:
    """Return the status from rows alone."""
    row = AlertWatch.objects.filter(pk=1).first()
    managers = api_client.list_alertmanagers()
    elsewhere = tuple(manager.source for manager in managers if manager.source != OWN)
    doing, trouble, remedy = _trouble(row, bool(managers))
    looked_at = row.looked_at if row else None
    managed = settings.EMBERLINE.alertmanager_file is not None
    return NotificationStatus(looked_at, managed, trouble, remedy, doing, elsewhere)


def _trouble(row: AlertWatch | None, delivers: bool) -> tuple[Doing, str, str]:
    if row is None or row.looked_at is None or timezone.now() - row.looked_at > _LATE:
        return (
            Doing.LATE,
            "Alerts are not processed: the console's background worker is not running.",
            "Check worker and scheduler (beat) under System.",
        )
    if row.reason == NO_PROMETHEUS:
        return (
            Doing.IDLE,
            "No Prometheus configured: no alert can fire.",
            "Add a metrics source, or set PROMETHEUS_URL.",
        )
    if not delivers:
        problem = api_client.NONE_CONFIGURED
        return Doing.FAILING, f"{problem.message} No alert is sent.", problem.remedy
    if row.reason == PROMETHEUS_UNREACHABLE:
        return (
            Doing.FAILING,
            f"Alert state unknown. {row.message}",
            "Receivers are notified after 2 minutes.",
        )
    config = selectors.config_file()
    if config is not None and config.state == ConfigState.REFUSED:
        remedy = "Correct the receiver or route. The previous configuration stays active."
        return Doing.FAILING, config.message, remedy
    if config is not None and config.message:
        return Doing.LATE, config.message, "Check alertmanager under System."
    if settings.EMBERLINE.alertmanager_file is not None and not _receiving().exists():
        return Doing.IDLE, "No alert receivers configured.", "Add a receiver and a route."
    if row.reason == ALERTMANAGER_UNREACHABLE:
        text = f"Alertmanager does not respond. {row.message}"
        return Doing.FAILING, text, "Check alertmanager under System."
    return Doing.WORKING, "", ""


def deliverers() -> str:
    """Return who sends alerts: this installation's receivers, other Alertmanagers, or none."""
    count = _receiving().count()
    parts = [f"{count} receiver{'s' if count != 1 else ''}"] if count else []
    status = notification_status()
    if not status.managed and settings.EMBERLINE.alertmanager_url:
        parts = ["Alertmanager"]
    parts += [f"Alertmanager of {source}" for source in status.elsewhere]
    return ", ".join(parts) or "No alert receivers configured"


def _receiving() -> QuerySet[Receiver]:
    return selectors.enabled_receivers().filter(routes__isnull=False).distinct()


def as_round() -> Round:
    status = notification_status()
    purpose = "Follows firing alerts every 10 s and configures Alertmanager"
    text = status.trouble or "Alerts reach the receivers."
    return Round("alerts", purpose, status.doing, status.looked_at, text, status.remedy)
