"""Celery tasks that reconcile cache tiers."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from console.claims import any_due, due
from console.tasks import BaseTask


@shared_task(base=BaseTask, name="cachetier.tasks.reconcile_tier")
def reconcile_tier(tier_id: str) -> None:
    from cachetier.reconciler import reconcile

    reconcile(tier_id)


def _any_due() -> bool:
    from cachetier.models import CacheTierStatus

    return any_due(CacheTierStatus)


@shared_task(base=BaseTask, has_work=staticmethod(_any_due), name="cachetier.tasks.sweep")
def sweep() -> None:
    from cachetier.models import CacheTierStatus

    reconcile_tier.spread(due(CacheTierStatus, timezone.now(), limit=50))
