"""Celery task that updates the rule file; each change of a rule triggers it."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


def _has_work() -> bool:
    from dashboards.alerts.settings.rule_file import has_work

    return has_work()


@shared_task(base=BaseTask, has_work=staticmethod(_has_work), name="dashboards.alerting.tasks.load")
def load() -> None:
    from dashboards.alerts.settings.rule_file import load as bring

    bring()
