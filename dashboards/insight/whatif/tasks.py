"""Sweep over what-if analyses; nudged when one is started."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


def _has_work() -> bool:
    from dashboards.insight.whatif.lifecycle import has_work

    return has_work()


@shared_task(
    base=BaseTask, has_work=staticmethod(_has_work), name="dashboards.insight.whatif.tasks.sweep"
)
def sweep() -> None:
    from dashboards.insight.whatif.lifecycle import sweep as start_next

    start_next()
