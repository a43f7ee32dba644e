"""Background work of the REST base."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


@shared_task(base=BaseTask, name="console.api.tasks.prune")
def prune() -> None:
    """Answers to creates which nobody may ask for any more."""
    from console.api import idempotency

    idempotency.prune()
