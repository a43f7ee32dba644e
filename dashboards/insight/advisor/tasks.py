"""Periodic check of applied advice."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from console.tasks import BaseTask


def _has_work() -> bool:
    from dashboards.insight.advisor.checks import has_work

    return has_work()


@shared_task(
    base=BaseTask, has_work=staticmethod(_has_work), name="dashboards.insight.advisor.tasks.check"
)
def check() -> None:
    from dashboards.insight.advisor.checks import check_all

    check_all(timezone.now())
