"""Celery task that updates the rule file; each change of a rule triggers it."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="dashboards.alerting.tasks.load")
def load() -> None:
    from dashboards.alerts.settings.rule_file import load as bring

    bring()
