"""The shapes which REST answers of all rooms share, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers
from rest_framework.response import Response


class ErrorItemSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="Stable; a program may decide by it.")
    detail = serializers.CharField(help_text="What is wrong, for a person.")
    field = serializers.CharField(allow_null=True, help_text="Dotted; null: not about one field.")
    value = serializers.JSONField(allow_null=True, help_text="What was sent there.")
    remedy = serializers.CharField(allow_blank=True, help_text="What to do instead.")


class ErrorSerializer(ErrorItemSerializer):
    """Every refusal; the first fields repeat the first of `errors`."""

    request_id = serializers.CharField(help_text="As in the log and in the audit trail.")

    def get_fields(self) -> dict[str, Any]:
        """`errors` is a property of serializers: a field of that name cannot be declared."""
        return {**super().get_fields(), "errors": ErrorItemSerializer(many=True)}


class ChangeSerializer(serializers.Serializer[Any]):
    """What a write changes, or would change."""

    field = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
    effect = serializers.CharField(help_text="Such as live or restart; empty where it has none.")

    def get_fields(self) -> dict[str, Any]:
        """`label` is an attribute of serializers: a field of that name cannot be declared."""
        return {**super().get_fields(), "label": serializers.CharField()}


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
