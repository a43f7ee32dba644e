"""Rows: clusters in which alert rules and receivers are maintained as objects, and their status.

`actions` writes ClusterAlerts; only `reconciler` writes ClusterAlertsStatus.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from console.claims import Desired, Observed


class ClusterAlerts(Desired):
    """Desired alert objects of one cluster.

    `rules`: a PrometheusRule; `receivers`: an AlertmanagerConfig and its Secret. An empty
    `namespace` is the cluster's own. `labels` are set on each object, for operators that select by
    label.
    """

    cluster = models.OneToOneField(
        "clusters.Cluster", primary_key=True, on_delete=models.CASCADE, related_name="alerts"
    )
    rules = models.BooleanField(default=False)
    receivers = models.BooleanField(default=False)
    namespace = models.CharField(max_length=63, default="", blank=True)
    labels = models.JSONField(default=dict, blank=True)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("cluster__name",)
        verbose_name_plural = "cluster alerts"

    def __str__(self) -> str:
        return f"alerts of {self.cluster_id}"

    @property
    def on(self) -> bool:
        return self.rules or self.receivers


class ClusterAlertsStatus(Observed):
    """Observed state of a cluster's alert objects. `there`: kind, namespace and name of each object
    that may exist, written before it is created. `tried`: digest of the latest desired state.
    `corrected`: number of reverted foreign changes, the latest at `corrected_at`.
    """

    alerts = models.OneToOneField(
        ClusterAlerts, primary_key=True, on_delete=models.CASCADE, related_name="status"
    )
    there = models.JSONField(default=list, blank=True)
    tried = models.CharField(max_length=32, default="", blank=True)
    kept_at = models.DateTimeField(null=True, blank=True)
    corrected = models.PositiveIntegerField(default=0)
    corrected_at = models.DateTimeField(null=True, blank=True)
    correction = models.CharField(max_length=500, default="", blank=True)

    class Meta:
        verbose_name_plural = "cluster alerts statuses"

    def __str__(self) -> str:
        return f"{self.alerts_id}: {self.phase}"
