"""Sweep over benchmarks; nudged when one is started or aborted."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="dashboards.benchmarks.tasks.sweep")
def sweep() -> None:
    from dashboards.benchmarks.lifecycle import sweep as all_of_them

    all_of_them()
