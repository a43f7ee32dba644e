"""Celery tasks of recorded traffic."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


def _any_recording() -> bool:
    from dashboards.insight.traces.collection import has_work

    return has_work()


@shared_task(
    base=BaseTask,
    has_work=staticmethod(_any_recording),
    name="dashboards.insight.traces.tasks.collect_traces",
)
def collect_traces() -> None:
    from dashboards.insight.traces.collection import collect

    collect()


@shared_task(base=BaseTask, name="dashboards.insight.traces.tasks.prune_traces")
def prune_traces() -> None:
    from dashboards.insight.traces.collection import prune_all

    prune_all()
