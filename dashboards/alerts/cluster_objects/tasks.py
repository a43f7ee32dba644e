"""Celery tasks that reconcile clusters' alert objects."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="dashboards.alert_objects.tasks.keep")
def keep(alerts_id: str) -> None:
    from dashboards.alerts.cluster_objects.reconciler import keep as bring

    bring(alerts_id)


@shared_task(base=BaseTask, name="dashboards.alert_objects.tasks.sweep")
def sweep() -> None:
    """Start passes for rows that are due or whose desired objects changed."""
    from dashboards.alerts.cluster_objects.actions import ensure_in_cluster
    from dashboards.alerts.cluster_objects.reconciler import due_now

    ensure_in_cluster()
    for pk in due_now():
        keep.nudge(pk)
