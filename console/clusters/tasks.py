"""Background refresh of clusters; tasks take ids and return nothing."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from console.claims import any_due, due
from console.tasks import BaseTask

REPEATS = 5
"""Repeats of a requested check while required rights are missing."""


@shared_task(base=BaseTask, name="console.clusters.tasks.refresh_cluster")
def refresh_cluster(cluster_id: str, repeats: int = 0) -> None:
    """Refresh; repeat a requested check soon, since a new Role takes effect with a delay."""
    from console.clusters.choices import ClusterReason
    from console.clusters.refresh import AGAIN_NOW_S, refresh

    refreshed = refresh(cluster_id)
    unsettled = refreshed is None or refreshed.reason == ClusterReason.RIGHTS_MISSING
    if repeats and unsettled:
        refresh_cluster.nudge(cluster_id, repeats - 1, countdown=AGAIN_NOW_S)


def _has_work() -> bool:
    from console.clusters.models import ClusterStatus

    return settings.EMBERLINE.provisioner == "kubernetes" or any_due(ClusterStatus)


@shared_task(base=BaseTask, has_work=staticmethod(_has_work), name="console.clusters.tasks.sweep")
def sweep() -> None:
    """Refresh clusters that are due or whose message was lost."""
    from console.clusters.models import ClusterStatus
    from console.clusters.refresh import ensure_in_cluster

    if settings.EMBERLINE.provisioner == "kubernetes":
        ensure_in_cluster()
    for pk in due(ClusterStatus, timezone.now(), limit=50):
        refresh_cluster.nudge(str(pk))
