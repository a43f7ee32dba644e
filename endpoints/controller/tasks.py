"""Background reconciliation of followed namespaces."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from console.claims import any_due, due
from console.tasks import BaseTask
from endpoints.controller.models import FollowStatus


@shared_task(base=BaseTask, name="endpoints.controller.tasks.follow_objects")
def follow_objects(follow_id: str) -> None:
    from endpoints.controller.reconciler import follow

    follow(follow_id)


def _any_due() -> bool:
    return any_due(FollowStatus)


@shared_task(
    base=BaseTask, has_work=staticmethod(_any_due), name="endpoints.controller.tasks.sweep"
)
def sweep() -> None:
    for pk in due(FollowStatus, timezone.now(), limit=100):
        follow_objects.nudge(str(pk))
