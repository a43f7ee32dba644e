"""Celery tasks of routing."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="routing.tasks.collect_usage")
def collect_usage() -> None:
    from routing.key_usage import collect_key_usage

    collect_key_usage()


@shared_task(base=BaseTask, name="routing.tasks.collect_canaries")
def collect_canaries() -> None:
    from routing.canary.collection import collect_canaries as collect

    collect()


@shared_task(base=BaseTask, name="routing.tasks.collect_traces")
def collect_traces() -> None:
    from routing.traces.collection import collect

    collect()


@shared_task(base=BaseTask, name="routing.tasks.prune_traces")
def prune_traces() -> None:
    from routing.traces.collection import prune_all

    prune_all()
