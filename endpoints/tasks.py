"""Background tasks of endpoints. They take ids and return nothing."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from console.claims import any_due, due
from console.tasks import BaseTask
from endpoints.keys import storage, usage
from endpoints.models import Endpoint, EndpointEvent, EndpointStatus, InferenceKey
from endpoints.reconcile.events import EVENTS_KEPT
from endpoints.reconcile.reconciler import Reconciler

REVOKED_FOR = timedelta(days=90)
"""Retention of revoked keys, whose names label old routing decisions."""


def prune_all() -> None:
    for endpoint_id in Endpoint.objects.values_list("pk", flat=True):
        newest = EndpointEvent.objects.filter(endpoint=endpoint_id).order_by("-last_at", "-id")
        kept_ids = list(newest.values_list("pk", flat=True)[:EVENTS_KEPT])
        EndpointEvent.objects.filter(endpoint=endpoint_id).exclude(pk__in=kept_ids).delete()
    InferenceKey.objects.filter(revoked_at__lt=timezone.now() - REVOKED_FOR).delete()
    usage.prune(timezone.now())
    _remove_orphans()


def _remove_orphans() -> None:
    """Remove key files of creations interrupted before their commit."""
    young = timezone.now() - timedelta(hours=1)
    for path in (settings.EMBERLINE.secrets / "endpoints").glob("*.key"):
        old = path.stat().st_mtime < young.timestamp()
        if old and not Endpoint.objects.filter(name=path.stem).exists():
            storage.remove_console_key(path.stem)


@shared_task(base=BaseTask, name="endpoints.tasks.reconcile_endpoint")
def reconcile_endpoint(endpoint_id: str) -> None:
    Reconciler.configured().reconcile(endpoint_id)


def _any_due() -> bool:
    return any_due(EndpointStatus)


@shared_task(base=BaseTask, has_work=staticmethod(_any_due), name="endpoints.tasks.sweep")
def sweep() -> None:
    """Reconcile endpoints that are due: lost messages, crashed workers, expired deadlines."""
    reconcile_endpoint.spread(due(EndpointStatus, timezone.now(), limit=500))


@shared_task(base=BaseTask, name="endpoints.tasks.prune")
def prune() -> None:
    prune_all()
