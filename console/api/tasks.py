"""Background tasks of the REST base."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="console.api.tasks.prune")
def prune() -> None:
    from console.api import idempotency

    idempotency.prune()
