"""The shapes which REST answers of all rooms share, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


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
