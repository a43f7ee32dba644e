"""Background looks at clusters; ids in, nothing out."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from console.claims import due
from console.tasks import BaseTask

REPEATS = 5
"""How often a look which a person asked for is repeated while needed rights are missing."""


@shared_task(base=BaseTask, name="console.clusters.tasks.refresh_cluster")
def refresh_cluster(cluster_id: str, repeats: int = 0) -> None:
    """A Role that was just applied reaches the API server's authorizer a moment later: of a look
    that a person asked for the next one follows soon."""
    from console.clusters.choices import ClusterReason
    from console.clusters.refresh import AGAIN_NOW_S, refresh

    seen = refresh(cluster_id)
    unsettled = seen is None or seen.reason == ClusterReason.RIGHTS_MISSING
    if repeats and unsettled:
        refresh_cluster.nudge(cluster_id, repeats - 1, countdown=AGAIN_NOW_S)


@shared_task(base=BaseTask, name="console.clusters.tasks.sweep")
def sweep() -> None:
    """What no message announced, and what wants another look by now."""
    from console.clusters import actions
    from console.clusters.models import ClusterStatus

    if settings.EMBERLINE.provisioner == "kubernetes":
        actions.ensure_in_cluster()
    for pk in due(ClusterStatus, timezone.now(), limit=50):
        refresh_cluster.nudge(str(pk))
