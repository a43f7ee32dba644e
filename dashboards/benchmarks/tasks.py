"""Sweep over benchmarks; nudged when one is started or aborted."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


def _has_work() -> bool:
    from dashboards.benchmarks.lifecycle import has_work

    return has_work()


@shared_task(
    base=BaseTask, has_work=staticmethod(_has_work), name="dashboards.benchmarks.tasks.sweep"
)
def sweep() -> None:
    from dashboards.benchmarks.lifecycle import sweep as all_of_them

    all_of_them()
