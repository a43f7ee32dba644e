"""Shared response serializers for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers
from rest_framework.response import Response


class ErrorItemSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="Stable code for programs.")
    detail = serializers.CharField(help_text="Description of the error.")
    field = serializers.CharField(
        allow_null=True, help_text="Dotted field name; null: concerns no single field."
    )
    value = serializers.JSONField(allow_null=True, help_text="The rejected value.")
    remedy = serializers.CharField(allow_blank=True, help_text="How to fix the error.")


class ErrorSerializer(ErrorItemSerializer):
    """Error response; the first fields repeat the first item of `errors`."""

    request_id = serializers.CharField(help_text="As in the log and the audit log.")

    def get_fields(self) -> dict[str, Any]:
        """Add `errors`, which cannot be declared: serializers have a property of that name."""
        return {**super().get_fields(), "errors": ErrorItemSerializer(many=True)}


class ChangeSerializer(serializers.Serializer[Any]):
    """One changed field, with its effect."""

    field = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
    effect = serializers.CharField(help_text="Such as live or restart; empty if none.")

    def get_fields(self) -> dict[str, Any]:
        """Add `label`, which cannot be declared: serializers have an attribute of that name."""
        return {**super().get_fields(), "label": serializers.CharField()}


ACTIONS = ("create", "update", "delete", "unchanged")


class DryRunSerializer(serializers.Serializer[Any]):
    """Dry-run response: the changes that would be made."""

    dry_run = serializers.BooleanField()
    name = serializers.CharField()
    action = serializers.ChoiceField(choices=ACTIONS)
    changes = ChangeSerializer(many=True)


def object_or_dry_run(name: str, serializer: Any) -> PolymorphicProxySerializer:
    """Document a response as the object or its dry-run result."""
    return PolymorphicProxySerializer(
        name, [serializer, DryRunSerializer], resource_type_field_name=None
    )


def dry_run_response(
    action: str,
    name: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    labels: Mapping[str, tuple[str, str]],
) -> Response:
    """Return a dry-run response.

    `labels` maps a field to its label and the effect of changing it. An update without changes is
    reported as no action.
    """
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
