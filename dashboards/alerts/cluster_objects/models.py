"""Rows: in which clusters alert rules and receivers are kept as objects, and what became of them.

Promises names and invariants only. `actions` writes ClusterAlerts; `keeping` alone writes what is.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from console.claims import Desired, Observed


class ClusterAlerts(Desired):
    """What is wanted in one cluster. `rules`: a PrometheusRule; `receivers`: an AlertmanagerConfig
    with its Secret. `namespace` "" is the cluster's own; `labels` are put on each object, for an
    operator which takes only those that have them."""

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
    """`there`: kind, namespace and name of whatever may be there of ours; written before it is
    made. `tried`: digest of what the latest pass wanted. `corrected`: how often somebody's change
    was taken back, the latest at `corrected_at`."""

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
