"""Queries on cluster alert objects for pages, REST and other apps.

The number of queries is independent of the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from console.accounts.permissions import allows
from console.clusters import selectors as clusters
from console.clusters.choices import ClusterPhase
from console.clusters.related_objects import RelatedObject
from console.clusters.removal_proof import SILENT_FOR_S
from console.core.errors import Problem, Refused
from console.provisioners.kubernetes.discovery.rights import RECEIVERS_GROUP
from dashboards.alerts.cluster_objects.models import ClusterAlerts, ClusterAlertsStatus
from dashboards.prometheus.sources import selectors as metrics_sources

OFF = "Off"


@dataclass(frozen=True, slots=True)
class ClusterAlertsSummary:
    """Desired and observed state of one cluster. `namespace` is the effective one."""

    cluster: Any
    row: ClusterAlerts
    status: ClusterAlertsStatus
    namespace: str

    @property
    def name(self) -> str:
        return str(self.cluster.name)

    @property
    def phase(self) -> str:
        if not self.row.on:
            return "Deleting" if self.status.there else OFF
        behind = self.status.observed_generation != self.row.generation
        return str(ClusterPhase.PENDING) if behind else self.status.phase

    @property
    def trouble(self) -> bool:
        return self.phase in (ClusterPhase.DEGRADED, ClusterPhase.FAILED)

    @property
    def objects(self) -> list[str]:
        return [f"{kind}/{name}" for kind, _namespace, name in self.status.there]


def cluster_summaries() -> list[ClusterAlertsSummary]:
    """Return every cluster, including those without alert objects."""
    rows = {row.cluster_id: row for row in desired_rows()}
    return [_shown(cluster, rows.get(cluster.pk)) for cluster in clusters.clusters()]


def one(name: str) -> ClusterAlertsSummary:
    cluster = clusters.get(name)
    if cluster is None:
        text = f"Unknown cluster {name[:80]}."
        problem = Problem(
            "cluster", name[:80], text, "Select one listed under Clusters.", "not_found"
        )
        raise Refused(problem, status_code=404)
    return _shown(cluster, desired_rows().filter(cluster=cluster).first())


def _shown(cluster: Any, row: ClusterAlerts | None) -> ClusterAlertsSummary:
    if row is None:
        row = ClusterAlerts(cluster=cluster, generation=0)
        status = ClusterAlertsStatus(alerts=row, phase=OFF)
    else:
        status = row.status
    return ClusterAlertsSummary(cluster, row, status, row.namespace or cluster.namespace)


def desired_rows() -> QuerySet[ClusterAlerts]:
    return ClusterAlerts.objects.select_related("status", "cluster", "changed_by")


def has_alertmanager(cluster: str) -> bool:
    """Return whether the cluster's alerts go to an Alertmanager that the console does not write
    the configuration of.
    """
    source = metrics_sources.get_source_of_cluster(cluster, metrics_sources.list_in_use())
    if source.name != metrics_sources.OWN:
        return bool(source.alertmanager_url)
    settings_now = settings.EMBERLINE
    return bool(settings_now.alertmanager_url) and settings_now.alertmanager_file is None


def clusters_in_use() -> Mapping[str, list[str]]:
    """Return the clusters that contain our objects and therefore cannot be deleted.

    An unreachable cluster can be deleted once nothing is desired there.
    """
    clusters = {}
    for row in desired_rows().select_related("cluster__status"):
        seen_at = row.cluster.status.seen_at
        silent = seen_at is None or timezone.now() - seen_at > timedelta(seconds=SILENT_FOR_S)
        if row.on or (row.status.there and not silent):
            clusters[row.cluster.name] = ["alert rules of this console"]
    return clusters


def required_permissions() -> Mapping[str, list[str]]:
    """Return the permission groups needed, by cluster.

    Permissions in a namespace other than the cluster's own only show when a request is denied.
    """
    rows = desired_rows().filter(receivers=True, namespace="")
    return {row.cluster.name: [RECEIVERS_GROUP] for row in rows}


def related_object(cluster: str, viewer: Any) -> RelatedObject | None:
    """Return the entry on the cluster's page: a link if nothing is configured."""
    return _line(one(cluster)) if allows(viewer, "viewer") else None


def related_objects(viewer: Any) -> list[RelatedObject]:
    """Return the entries of all clusters with desired or remaining objects."""
    if not allows(viewer, "viewer"):
        return []
    rows = [
        cluster_summary for cluster_summary in cluster_summaries() if cluster_summary.phase != OFF
    ]
    return [replace(_line(row), title=row.name) for row in rows]


def _line(one: ClusterAlertsSummary) -> RelatedObject:
    page = reverse("alert_objects:cluster", args=[one.name])
    if one.phase == OFF:
        return RelatedObject("Alert rules", "not synced", "", url=page)
    text = one.status.message if one.trouble or one.phase == "Deleting" else ""
    return RelatedObject("Alert rules", "synced", one.phase, one.status.reason, text, page)
