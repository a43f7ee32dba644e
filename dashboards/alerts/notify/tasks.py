"""Looking at what fires, carrying what is owed, forgetting what is old."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="dashboards.notify.tasks.look")
def look() -> None:
    """Every ten seconds; what is due is carried by tasks of its own, side by side."""
    from django.utils import timezone

    from dashboards.alerts.notify import deliveries, dispatcher

    dispatcher.look()
    for pk in deliveries.due(timezone.now()):
        deliver.nudge(str(pk))


@shared_task(base=BaseTask, name="dashboards.notify.tasks.deliver")
def deliver(delivery: str) -> None:
    from dashboards.alerts.notify import deliveries

    deliveries.attempt(delivery)


@shared_task(base=BaseTask, name="dashboards.notify.tasks.prune")
def prune() -> None:
    from django.utils import timezone

    from dashboards.alerts.notify import deliveries

    deliveries.prune(timezone.now())
