"""Celery tasks of an endpoint's routers."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


def _any_budget() -> bool:
    from endpoints.keys import usage

    return usage.any_budget()


def _any_canary() -> bool:
    from endpoints.router.models import Canary, CanaryState

    return Canary.objects.filter(state=CanaryState.RUNNING).exists()


@shared_task(
    base=BaseTask,
    has_work=staticmethod(_any_budget),
    max_skip_s=30.0,
    name="endpoints.router.tasks.collect_usage",
)
def collect_usage() -> None:
    from endpoints.router.key_usage import collect_key_usage

    collect_key_usage()


@shared_task(
    base=BaseTask,
    has_work=staticmethod(_any_canary),
    name="endpoints.router.tasks.collect_canaries",
)
def collect_canaries() -> None:
    from endpoints.router.canary.collection import collect_canaries as collect

    collect()
