"""`?dry_run=true` on a write: the write itself, rehearsed and not kept, and what it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers
from rest_framework.response import Response

from console.api.serializers import ChangeSerializer

ACTIONS = ("create", "update", "delete", "unchanged")


class DryRunSerializer(serializers.Serializer[Any]):
    """The answer to a dry run: what would have changed."""

    dry_run = serializers.BooleanField()
    name = serializers.CharField()
    action = serializers.ChoiceField(choices=ACTIONS)
    changes = ChangeSerializer(many=True)


def either(name: str, serializer: Any) -> PolymorphicProxySerializer:
    """For the document: the thing, or what a dry run says of it."""
    return PolymorphicProxySerializer(
        name, [serializer, DryRunSerializer], resource_type_field_name=None
    )


def would(
    action: str,
    name: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    labels: Mapping[str, tuple[str, str]],
) -> Response:
    """`labels`: of each field its label and the effect of changing it. An update that changes
    nothing is said to be none."""
    changes = [
        {
            "field": field,
            "label": label,
            "before": before.get(field),
            "after": after.get(field),
            "effect": effect,
        }
        for field, (label, effect) in labels.items()
        if before.get(field) != after.get(field) and action != "delete"
    ]
    done = "unchanged" if action == "update" and not changes else action
    return Response({"dry_run": True, "name": name, "action": done, "changes": changes})
