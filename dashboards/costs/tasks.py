"""The hourly look at what everything cost, and the budgets held against it."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="dashboards.money.tasks.sweep")
def sweep() -> None:
    from django.utils import timezone

    from dashboards.costs import banner, budgets
    from dashboards.costs.ledger import hours
    from dashboards.prometheus import connections

    now = timezone.now()
    if connections.any_known():
        hours.measure(connections.fleet(), now)
    if budgets.judge(now):
        banner.forget()
