"""Clusters and their observed status.

`actions` writes Cluster (`refresh` the in-cluster one); `refresh` alone writes ClusterStatus.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone

from console.claims import Desired, Observed
from console.clusters.choices import REACHES, Reach
from console.provisioners.kubernetes.api.access import KINDS, KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.discovery.inventory import Inventory
from console.provisioners.kubernetes.discovery.rights import GrantedRights
from console.vault import encryption

LOGIN_WARNED_DAYS = 7  # renewing a token may depend on another team


class Cluster(Desired):
    """Kubernetes cluster.

    `kubeconfig` is encrypted; `context` names one in it, or one of the server's kubeconfig.
    `namespace` is the default for endpoints. `reach`: whether the console can connect to pod
    addresses.
    """

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
    def granted(self) -> GrantedRights:
        return GrantedRights.of_json(self.status.rights)

    @property
    def purpose(self) -> str:
        """Return the encryption purpose of its kubeconfig."""
        return f"cluster/{self.pk}"

    def access(self) -> ClusterAccess:
        """Return the credentials; raise `Unreadable` if the encryption key is missing."""
        text = encryption.unseal(self.kubeconfig, self.purpose) if self.kind == KUBECONFIG else ""
        return ClusterAccess(self.kind, text, self.context)


class ClusterStatus(Observed):
    """Observed status; `seen_at` is the last response.

    `inventory` and `rights` keep the last values while the cluster is unreachable.
    """

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


class ClusterWatch(models.Model):
    """State of the watch of one kind of objects in a namespace, as last reported by a Celery
    worker: `error` is "" while it is live, `losses` counts interruptions.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="watches")
    namespace = models.CharField(max_length=63)
    kind = models.CharField(max_length=63)
    error = models.TextField(default="", blank=True)
    losses = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("namespace", "kind")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "namespace", "kind"), name="one_watch_per_kind"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} in {self.namespace}"
