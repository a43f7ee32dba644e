"""Celery tasks that reconcile clusters' alert objects."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask
from dashboards.alerts.cluster_objects import reconciler


@shared_task(base=BaseTask, name="dashboards.alert_objects.tasks.keep")
def keep(alerts_id: str) -> None:
    reconciler.reconcile(alerts_id)


@shared_task(
    base=BaseTask,
    has_work=staticmethod(reconciler.has_work),
    name="dashboards.alert_objects.tasks.sweep",
)
def sweep() -> None:
    """Start passes for rows that are due or whose desired objects changed."""
    reconciler.ensure_in_cluster()
    for pk in reconciler.find_due():
        keep.nudge(pk)
