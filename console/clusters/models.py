"""Rows: the clusters this console may use, and what was last seen of each.

Promises invariants and names only. `actions` writes Cluster; `refresh` alone writes ClusterStatus.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone

from console.claims import Desired, Observed
from console.clusters.choices import KINDS, REACHES, Reach
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.discovery.inventory import Inventory
from console.provisioners.kubernetes.discovery.rights import Granted
from console.vault import encryption

LOGIN_WARNED_DAYS = 7  # a renewed token may take somebody else's time


class Cluster(Desired):
    """`kubeconfig` is sealed; `context` names one in it, or one of the console's machine.
    `namespace` is where endpoints go which name none. `reach`: whether this console can open
    connections to addresses of pods."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=40, unique=True)
    kind = models.CharField(max_length=16, choices=[(kind, kind) for kind in KINDS])
    kubeconfig = models.TextField(default="", blank=True)
    context = models.CharField(max_length=253, default="", blank=True)
    namespace = models.CharField(max_length=63, default="default")
    reach = models.CharField(
        max_length=16, default=Reach.PODS, choices=[(reach, reach) for reach in REACHES]
    )
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def inventory(self) -> Inventory:
        return Inventory.of_json(self.status.inventory)

    @property
    def granted(self) -> Granted:
        return Granted.of_json(self.status.rights)

    @property
    def purpose(self) -> str:
        """What its kubeconfig is sealed for."""
        return f"cluster/{self.pk}"

    def access(self) -> ClusterAccess:
        """`sealing.Unreadable` when the key that sealed its kubeconfig is not here."""
        text = encryption.unseal(self.kubeconfig, self.purpose) if self.kind == KUBECONFIG else ""
        return ClusterAccess(self.kind, text, self.context)


class ClusterStatus(Observed):
    """`seen_at` is when the cluster last answered; what it said then (`inventory`, `rights`) stays
    while it is away."""

    cluster = models.OneToOneField(
        Cluster, primary_key=True, on_delete=models.CASCADE, related_name="status"
    )
    server_version = models.CharField(max_length=40, default="", blank=True)
    inventory = models.JSONField(default=dict, blank=True)
    rights = models.JSONField(default=dict, blank=True)
    seen_at = models.DateTimeField(null=True)
    login_ends_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "cluster statuses"

    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.phase}"

    @property
    def login_ends_soon(self) -> bool:
        soon = timezone.now() + timedelta(days=LOGIN_WARNED_DAYS)
        return self.login_ends_at is not None and self.login_ends_at < soon
