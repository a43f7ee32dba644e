"""Celery tasks of routing."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


def _any_budget() -> bool:
    from endpoints.keys import usage

    return usage.any_budget()


def _any_canary() -> bool:
    from routing.models import Canary, CanaryState

    return Canary.objects.filter(state=CanaryState.RUNNING).exists()


@shared_task(
    base=BaseTask,
    has_work=staticmethod(_any_budget),
    max_skip_s=30.0,
    name="routing.tasks.collect_usage",
)
def collect_usage() -> None:
    from routing.key_usage import collect_key_usage

    collect_key_usage()


@shared_task(
    base=BaseTask, has_work=staticmethod(_any_canary), name="routing.tasks.collect_canaries"
)
def collect_canaries() -> None:
    from routing.canary.collection import collect_canaries as collect

    collect()


def _any_recording() -> bool:
    from routing.traces.collection import has_work

    return has_work()


@shared_task(
    base=BaseTask, has_work=staticmethod(_any_recording), name="routing.tasks.collect_traces"
)
def collect_traces() -> None:
    from routing.traces.collection import collect

    collect()


@shared_task(base=BaseTask, name="routing.tasks.prune_traces")
def prune_traces() -> None:
    from routing.traces.collection import prune_all

    prune_all()
