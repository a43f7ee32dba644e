"""Representation of keys, key groups and their usage."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from endpoints.keys.bodies import TermsSerializer
from endpoints.models import InferenceKey, KeyGroup


class KeySerializer(serializers.Serializer[InferenceKey]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="First characters of the key.")
    endpoint = serializers.CharField(allow_null=True)
    group = serializers.CharField(allow_null=True)
    terms = TermsSerializer()
    pin = serializers.BooleanField(help_text="As in terms.")
    spent_until = serializers.DateTimeField(
        allow_null=True, help_text="Budget exhausted until this time."
    )
    old_until = serializers.DateTimeField(
        allow_null=True, help_text="Expiry of the previous secret."
    )
    last_used_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()

    def to_representation(self, instance: InferenceKey) -> dict[str, Any]:
        return {
            "id": str(instance.pk),
            "name": instance.name,
            "prefix": instance.prefix,
            "endpoint": instance.endpoint.name if instance.endpoint else None,
            "group": str(instance.group_id) if instance.group_id else None,
            "terms": instance.allowed.to_dict(),
            "pin": instance.pin,
            "spent_until": instance.spent_until,
            "old_until": instance.old_until,
            "last_used_at": instance.last_used_at,
            "created_at": instance.created_at,
            "created_by": instance.created_by.get_username() if instance.created_by else "system",
        }


class NewKeySerializer(KeySerializer):
    key = serializers.CharField(help_text="Clear-text key, returned in this response only.")


class GroupSerializer(serializers.Serializer[KeyGroup]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField()
    endpoints = serializers.ListField(child=serializers.CharField(), help_text="Endpoint names.")
    created_at = serializers.DateTimeField()

    def to_representation(self, instance: KeyGroup) -> dict[str, Any]:
        return {
            "id": str(instance.pk),
            "name": instance.name,
            "description": instance.description,
            "endpoints": sorted(endpoint.name for endpoint in instance.endpoints.all()),
            "created_at": instance.created_at,
        }


class UsedSerializer(serializers.Serializer[Any]):
    """Token counts reported by engines, or estimated by routers."""

    key_id = serializers.CharField(help_text='A key\'s id, "console", or "" without keys.')
    key_name = serializers.CharField(help_text="Empty if the key was pruned.")
    requests = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="Failed requests.")
    prompt_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField(help_text="Of the prompt tokens.")
    completion_tokens = serializers.IntegerField()
    unreported = serializers.IntegerField(
        help_text="Requests without reported usage, whose tokens are estimated."
    )
    estimated_prompt_tokens = serializers.IntegerField(help_text="Of the prompt tokens.")
    estimated_completion_tokens = serializers.IntegerField(help_text="Of the completion tokens.")


class UsageSerializer(serializers.Serializer[Any]):
    endpoint = serializers.CharField()
    since = serializers.DateTimeField(help_text="Start of an hour, UTC.")
    total = UsedSerializer()
    keys = UsedSerializer(many=True)
