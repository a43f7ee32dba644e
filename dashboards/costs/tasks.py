"""Celery tasks: hourly cost measurement and budget check."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from console.system.rounds import Round, RoundState
from console.tasks import BaseTask
from dashboards.costs import budgets
from dashboards.costs.ledger import hours
from dashboards.costs.models import MeasuredHour
from dashboards.prometheus.sources import selectors as connections


@shared_task(base=BaseTask, name="dashboards.money.tasks.sweep")
def sweep() -> None:
    now = timezone.now()
    if connections.any_known():
        hours.measure_hours(connections.fleet(), now)
    if budgets.record_crossings(now):
        budgets.clear_crossings()


def _is_calibration_due() -> bool:
    from dashboards import auto_calibration

    return auto_calibration.has_work()


@shared_task(
    base=BaseTask,
    has_work=staticmethod(_is_calibration_due),
    name="dashboards.money.tasks.calibrate",
)
def calibrate() -> None:
    """Start the next automatic calibration, if one is due."""
    from dashboards import auto_calibration

    auto_calibration.sweep()


LATE = timedelta(minutes=10)
"""Delay after its end until a missing hour is reported as late."""
_PURPOSE = "Query the usage of each full hour from Prometheus and add it to the daily costs"
_REMEDY = (
    "Missing hours are queried every minute, up to 14 days back. If they stay missing, check "
    "Metrics sources, and that celery-worker runs (on Kubernetes: worker and beat)."
)


def as_round() -> Round:
    now = timezone.now()
    late = [hour for hour in hours.missing_hours(now) if now - hour > hours.HOUR + LATE]
    last = MeasuredHour.objects.order_by("-looked_at").first()

    def line(state: RoundState, text: str, remedy: str = "") -> Round:
        return Round("costs", _PURPOSE, state, last.looked_at if last else None, text, remedy)

    if late and not connections.any_known():
        text = "No Prometheus is configured, so no costs are added."
        return line(RoundState.IDLE, text, "Add a metrics source, or set PROMETHEUS_URL.")
    if late:
        text = f"Missing hours: {len(late)}, the latest from {late[0]:%F %R} UTC."
        return line(RoundState.LATE, text, _REMEDY)
    if last is None:
        return line(RoundState.IDLE, "No full hour with an endpoint yet.")
    return line(RoundState.WORKING, "All full hours are added.")
