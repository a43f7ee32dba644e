"""The hourly look at what everything cost, and the budgets held against it."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="dashboards.money.tasks.sweep")
def sweep() -> None:
    from django.utils import timezone

    from dashboards import sources
    from dashboards.money import banner, budgets, hours

    now = timezone.now()
    if sources.any_known():
        hours.measure(sources.fleet(), now)
    if budgets.judge(now):
        banner.forget()
