"""Metrics sources: Prometheus servers beside the console's own."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from dashboards.prometheus.http.login import TENANT_HEADER, Auth

AUTHS = tuple(Auth)


class MetricsSource(models.Model):
    """Prometheus that the console queries. `cluster`: the cluster whose endpoints' metrics the
    source holds; null means all clusters without a source of their own. `sealed` maps field names
    to sealed secrets; `*_file` are names in the console's folder of secret files and take
    precedence. `found` is the result of the last examination, made at `verified_at`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=40, unique=True)
    url = models.CharField(max_length=500)
    cluster = models.CharField(max_length=40, null=True, blank=True)
    auth = models.CharField(max_length=8, default=Auth.NONE, choices=[(a, a) for a in AUTHS])
    username = models.CharField(max_length=200, default="", blank=True)
    sealed = models.JSONField(default=dict, blank=True)
    secret_file = models.CharField(max_length=100, default="", blank=True)
    key_file = models.CharField(max_length=100, default="", blank=True)
    certificate = models.TextField(default="", blank=True)
    ca = models.TextField(default="", blank=True)
    tenant = models.CharField(max_length=200, default="", blank=True)
    tenant_header = models.CharField(max_length=60, default=TENANT_HEADER)
    region = models.CharField(max_length=40, default="", blank=True)
    service = models.CharField(max_length=40, default="aps", blank=True)
    alertmanager_url = models.CharField(max_length=500, default="", blank=True)
    enabled = models.BooleanField(default=True)
    generation = models.PositiveIntegerField(default=1)
    verified_at = models.DateTimeField(null=True)
    found: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(
                fields=("cluster",), condition=models.Q(enabled=True), name="one_source_a_cluster"
            ),
            models.UniqueConstraint(
                fields=("enabled",),
                condition=models.Q(enabled=True, cluster__isnull=True),
                name="one_default_source",
            ),
        )

    def __str__(self) -> str:
        return self.name

    def purpose(self, field: str) -> str:
        return f"metrics-source/{self.pk}/{field}"
