"""Background looks at clusters; ids in, nothing out."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from console.reconcile import due
from console.tasks import BaseTask


@shared_task(base=BaseTask)
def refresh_cluster(cluster_id: str) -> None:
    from console.clusters.refresh import refresh

    refresh(cluster_id)


@shared_task(base=BaseTask)
def sweep() -> None:
    """What no message announced, and what wants another look by now."""
    from console.clusters import actions
    from console.clusters.models import ClusterStatus

    if settings.EMBERLINE.provisioner == "kubernetes":
        actions.ensure_in_cluster()
    for pk in due(ClusterStatus, timezone.now(), limit=50):
        refresh_cluster.nudge(str(pk))
