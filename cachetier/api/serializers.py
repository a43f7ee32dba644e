"""REST serializers of cache tiers; `actions` validates writes."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final

from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers

from cachetier import selectors
from cachetier.models import CacheNode, CacheTier
from cachetier.tier import balance
from cachetier.tier.spec import POLICIES, TierSpec


class NodeSerializer(serializers.ModelSerializer[CacheNode]):
    blocks = serializers.FloatField(read_only=True, allow_null=True, help_text="Values stored.")
    share = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Share of the tier's blocks, 0 to 1."
    )
    moved_in = serializers.FloatField(
        read_only=True,
        allow_null=True,
        help_text="Values moved to this node when nodes joined, left or returned, since its start.",
    )

    class Meta:
        model = CacheNode
        fields = (
            "name",
            "state",
            "url",
            "pid",
            "started_at",
            "restarts",
            "last_restart_at",
            "message",
            "blocks",
            "share",
            "moved_in",
        )


class RebalancingSerializer(serializers.Serializer[Any]):
    """Keys are changing nodes; until `until` they are also looked up at their previous node."""

    node = serializers.CharField()
    reason = serializers.ChoiceField(
        choices=(balance.JOINED, balance.RETURNED, balance.LEAVING), help_text="What the node did."
    )
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(
        allow_null=True, help_text="null while the node hands over its values."
    )
    message = serializers.CharField()


class TierSerializer(serializers.ModelSerializer[CacheTier]):
    phase = serializers.CharField(source="shown_phase", read_only=True)
    reason = serializers.CharField(source="status.reason", read_only=True)
    message = serializers.CharField(source="status.message", read_only=True)
    url = serializers.CharField(source="status.url", read_only=True)
    observed_generation = serializers.IntegerField(
        source="status.observed_generation", read_only=True
    )
    nodes = NodeSerializer(many=True, read_only=True)
    imbalance = serializers.FloatField(
        read_only=True,
        allow_null=True,
        help_text="Blocks of the fullest node over the mean; null with fewer than two nodes.",
    )
    rebalancing = RebalancingSerializer(
        read_only=True, allow_null=True, help_text="null while no keys are changing nodes."
    )
    usage = serializers.SerializerMethodField()
    used_by = serializers.SerializerMethodField()

    class Meta:
        model = CacheTier
        fields = (
            "name",
            *(field.name for field in fields(TierSpec)),
            "generation",
            "observed_generation",
            "phase",
            "reason",
            "message",
            "url",
            "nodes",
            "imbalance",
            "rebalancing",
            "usage",
            "used_by",
            "created_at",
            "changed_at",
        )

    @extend_schema_field(
        {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}}
    )
    def get_usage(self, tier: CacheTier) -> dict[str, Any]:
        """Usage reported by the nodes; null: not reported."""
        return asdict(selectors.numbers(tier))

    def get_used_by(self, tier: CacheTier) -> list[str]:
        """Users such as "endpoint demo"; a tier in use cannot be deleted."""
        users: list[str] = self.context["users"].get(tier.name, [])
        return users


def _number(text: str) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, help_text=text)


def _text(text: str) -> serializers.CharField:
    return serializers.CharField(required=False, help_text=text)


class ChangeSerializer(serializers.Serializer[Any]):
    """Fields to change; omitted ones keep their value."""

    memory_bytes = _number("Each node's memory, at least 67108864 (64 MiB). Applies live.")
    disk_bytes = _number("Each node's disk, 0 for none. Nodes restart one at a time.")
    node_count = _number("1 to 16. Applies live.")
    copies = _number("1 or 2 nodes for each value. Workers restart one at a time.")
    policy = serializers.ChoiceField(
        required=False, choices=POLICIES, help_text="Eviction. Nodes restart one at a time."
    )
    cpu_millis = _number("CPU request of each node on a cluster, 10 to 64000 millicores.")
    cpu_limit_millis = _number("CPU limit of each node on a cluster; 0: no limit.")
    memory_limit_bytes = _number(
        "Memory limit of each node on a cluster; 0: its memory and 192 MiB."
    )


class CreateSerializer(ChangeSerializer):
    name = serializers.CharField(help_text="1 to 40 lower-case letters, digits and dashes.")
    cluster = _text("Cluster to run on; empty: this machine. Cannot be changed.")
    namespace = _text("Namespace; empty: the cluster's default. Cannot be changed.")
    storage_class = _text("Storage class of node disks on a cluster. Cannot be changed.")


class FlushSerializer(serializers.Serializer[Any]):
    namespace = serializers.CharField(
        allow_blank=True,
        trim_whitespace=False,
        help_text='Namespace as listed by /contents/; "" removes everything.',
    )


class FlushedSerializer(serializers.Serializer[Any]):
    dropped = serializers.IntegerField(help_text="Number of values removed.")


class NamespaceSerializer(serializers.Serializer[Any]):
    """Totals over the nodes since their start."""

    namespace = serializers.CharField(help_text='"" stands for all keys that are not blocks.')
    bytes = serializers.FloatField()
    blocks = serializers.FloatField()
    lookups = serializers.FloatField()
    hits = serializers.FloatField()
    evicted = serializers.FloatField()


class PointSerializer(serializers.Serializer[Any]):
    share = serializers.FloatField(help_text="Multiple of the tier's current memory.")
    size_bytes = serializers.FloatField()
    hit_rate = serializers.FloatField(help_text="0 to 1.")


class WhatIfSerializer(serializers.Serializer[Any]):
    points = PointSerializer(many=True)
    knee = PointSerializer(help_text="Size beyond which the hit rate gains little.")
    advice = serializers.CharField()


class ContentsSerializer(serializers.Serializer[Any]):
    namespaces = NamespaceSerializer(many=True)
    what_if = WhatIfSerializer(allow_null=True, help_text="null until 1000 blocks were looked up.")


NEW_TIER: Final = [
    OpenApiExample(
        "1 GiB on each of two nodes",
        value={"name": "chat", "memory_bytes": 1073741824, "node_count": 2},
        request_only=True,
    )
]
