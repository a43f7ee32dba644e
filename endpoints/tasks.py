"""Background work on endpoints: ids in, nothing out, nothing waited for."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from console.claims import due
from console.tasks import BaseTask
from endpoints.models import EndpointStatus


@shared_task(base=BaseTask, name="endpoints.tasks.reconcile_endpoint")
def reconcile_endpoint(endpoint_id: str) -> None:
    from endpoints.reconcile.reconciler import Reconciler

    Reconciler.configured().reconcile(endpoint_id)


@shared_task(base=BaseTask, name="endpoints.tasks.sweep")
def sweep() -> None:
    """Finds what no message told of: lost nudges, dead workers, passed deadlines."""
    for endpoint_id in due(EndpointStatus, timezone.now(), limit=500):
        reconcile_endpoint.nudge(str(endpoint_id))


@shared_task(base=BaseTask, name="endpoints.tasks.prune")
def prune() -> None:
    from endpoints.pruning import prune_all

    prune_all()
