"""Request and response serializers; actions validate. Kubeconfigs are write-only."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from console.clusters.models import Cluster, ClusterWatch


class CapabilitySerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    title = serializers.CharField(source="label")
    present = serializers.BooleanField()
    unsure = serializers.BooleanField(
        help_text="Emberline lacks permission to check; assumed present."
    )
    detail = serializers.CharField()
    why_not = serializers.CharField()
    remedy = serializers.CharField()


class PoolSerializer(serializers.Serializer[Any]):
    """Nodes of one instance type and GPU."""

    instance_type = serializers.CharField()
    gpu = serializers.CharField()
    gpu_resource = serializers.CharField()
    gpu_memory_bytes = serializers.IntegerField(
        help_text="Memory of one GPU (bytes); 0: not labelled."
    )
    nodes = serializers.IntegerField()
    ready = serializers.IntegerField()
    gpus_per_node = serializers.IntegerField()
    gpus = serializers.IntegerField()
    gpus_free = serializers.IntegerField(allow_null=True, help_text="null: unknown.")
    cpus = serializers.FloatField()
    memory_bytes = serializers.IntegerField()
    zones = serializers.ListField(child=serializers.CharField())
    taints = serializers.ListField(child=serializers.CharField())


class OffersSerializer(serializers.Serializer[Any]):
    """Available names; null if Emberline may not list them."""

    namespaces = serializers.ListField(child=serializers.CharField(), allow_null=True)
    storage_classes = serializers.ListField(child=serializers.CharField(), allow_null=True)
    default_storage_class = serializers.CharField()
    ingress_classes = serializers.ListField(child=serializers.CharField(), allow_null=True)
    gateways = serializers.ListField(child=serializers.CharField(), allow_null=True)
    issuers = serializers.ListField(child=serializers.CharField(), allow_null=True)
    priority_classes = serializers.ListField(child=serializers.CharField(), allow_null=True)


class MissingSerializer(serializers.Serializer[Any]):
    group = serializers.CharField()
    resource = serializers.CharField()
    verbs = serializers.ListField(child=serializers.CharField())
    lost = serializers.CharField()
    cluster = serializers.BooleanField(help_text="Cluster-wide.")
    optional = serializers.BooleanField()
    namespace = serializers.CharField(
        help_text='Namespace, if it differs from the cluster\'s default; otherwise "".'
    )


class RightsSerializer(serializers.Serializer[Any]):
    who = serializers.CharField(help_text="User name as seen by the cluster.")
    namespace = serializers.CharField()
    enough = serializers.BooleanField()
    missing = MissingSerializer(many=True)
    manifest = serializers.CharField(
        help_text="YAML that grants the permission, for kubectl apply."
    )


class WatchSerializer(serializers.ModelSerializer[ClusterWatch]):
    """Watch of one kind of objects in a namespace, as last reported by a Celery worker."""

    class Meta:
        model = ClusterWatch
        fields = ("namespace", "kind", "error", "losses", "since", "seen_at")
        extra_kwargs: Final = {
            "error": {"help_text": 'Why endpoints are polled instead; "" while it is live.'},
            "losses": {"help_text": "Interruptions since the namespace is in use."},
            "since": {"help_text": "Beginning of the present state."},
            "seen_at": {"help_text": "Last report; a live watch reports every 5 minutes."},
        }


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    phase = serializers.CharField(source="status.phase", read_only=True)
    reason = serializers.CharField(source="status.reason", read_only=True)
    message = serializers.CharField(source="status.message", read_only=True)
    server_version = serializers.CharField(source="status.server_version", read_only=True)
    seen_at = serializers.DateTimeField(source="status.seen_at", read_only=True, allow_null=True)
    login_ends_at = serializers.DateTimeField(
        source="status.login_ends_at",
        read_only=True,
        allow_null=True,
        help_text="null: it renews itself, or unknown",
    )
    capabilities = CapabilitySerializer(source="inventory.findings", many=True, read_only=True)
    node_pools = PoolSerializer(source="inventory.pools", many=True, read_only=True)
    offers = OffersSerializer(source="inventory.offers", read_only=True)
    notes = serializers.ListField(
        source="inventory.notes", child=serializers.CharField(), read_only=True
    )
    rights = RightsSerializer(source="granted", read_only=True)
    watches = WatchSerializer(many=True, read_only=True)
    used_by = serializers.SerializerMethodField()

    class Meta:
        model = Cluster
        fields = (
            "name",
            "kind",
            "context",
            "namespace",
            "reach",
            "phase",
            "reason",
            "message",
            "server_version",
            "seen_at",
            "login_ends_at",
            "capabilities",
            "node_pools",
            "offers",
            "notes",
            "rights",
            "watches",
            "used_by",
            "created_at",
            "changed_at",
        )

    def get_used_by(self, cluster: Cluster) -> list[str]:
        """Objects such as "endpoint demo"; a cluster in use cannot be removed."""
        users: list[str] = self.context["users"].get(cluster.name, [])
        return users


NEW_CLUSTER: Final = [
    OpenApiExample(
        "The cluster this console runs in",
        value={"name": "here", "kind": "in-cluster", "namespace": "models", "reach": "pods"},
        request_only=True,
    )
]
