"""Shapes of the REST answers; what may be written is decided by actions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from cachetier import selectors
from cachetier.models import CacheNode, CacheTier


class NodeSerializer(serializers.ModelSerializer[CacheNode]):
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
        )


class TierSerializer(serializers.ModelSerializer[CacheTier]):
    phase = serializers.CharField(source="shown_phase", read_only=True)
    reason = serializers.CharField(source="status.reason", read_only=True)
    message = serializers.CharField(source="status.message", read_only=True)
    url = serializers.CharField(source="status.url", read_only=True)
    observed_generation = serializers.IntegerField(
        source="status.observed_generation", read_only=True
    )
    nodes = NodeSerializer(many=True, read_only=True)
    usage = serializers.SerializerMethodField()

    class Meta:
        model = CacheTier
        fields = (
            "name",
            "capacity_bytes",
            "generation",
            "observed_generation",
            "phase",
            "reason",
            "message",
            "url",
            "nodes",
            "usage",
            "created_at",
            "changed_at",
        )

    @extend_schema_field(
        {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}}
    )
    def get_usage(self, tier: CacheTier) -> dict[str, Any]:
        """As the nodes last said it; null: not said."""
        numbers = selectors.numbers(tier)
        return {
            "used_bytes": numbers.used_bytes,
            "capacity_bytes": numbers.capacity_bytes,
            "lookups": numbers.lookups,
            "hits": numbers.hits,
            "evictions": numbers.evictions,
            "seen_at": numbers.seen_at,
        }


class ResizeSerializer(serializers.Serializer[Any]):
    """`capacity_bytes` is the only thing that can be changed."""

    capacity_bytes = serializers.JSONField(help_text="Whole bytes, at least 67108864 (64 MiB).")
