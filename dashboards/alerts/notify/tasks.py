"""Celery tasks: dispatch alerts, send deliveries, prune old rows."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="dashboards.notify.tasks.look")
def dispatch_alerts() -> None:
    """Dispatch every ten seconds and start a task for each due delivery."""
    from django.utils import timezone

    from dashboards.alerts.notify import deliveries, dispatcher

    dispatcher.dispatch()
    for pk in deliveries.due_deliveries(timezone.now()):
        deliver.nudge(str(pk))


@shared_task(base=BaseTask, name="dashboards.notify.tasks.deliver")
def deliver(delivery: str) -> None:
    from dashboards.alerts.notify import deliveries

    deliveries.attempt_delivery(delivery)


@shared_task(base=BaseTask, name="dashboards.notify.tasks.prune")
def prune() -> None:
    from dashboards.alerts.notify import deliveries

    deliveries.prune()
