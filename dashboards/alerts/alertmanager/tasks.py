"""Celery tasks: watch firing alerts, write Alertmanager's configuration, prune old records."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="dashboards.notify.tasks.look")
def watch() -> None:
    """Run every ten seconds."""
    from dashboards.alerts.alertmanager import config_file, transitions

    if config_file.has_work():
        config_file.sync()
    transitions.run_pass()


@shared_task(base=BaseTask, name="dashboards.notify.tasks.sync")
def sync() -> None:
    """Run after each change of a receiver or route."""
    from dashboards.alerts.alertmanager import config_file

    config_file.sync()


@shared_task(base=BaseTask, name="dashboards.notify.tasks.prune")
def prune() -> None:
    from django.utils import timezone

    from dashboards.alerts.alertmanager import transitions

    transitions.prune(timezone.now())
