"""Input of keys and key groups, for forms, REST and command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from console.api.bodies import read_body
from console.validators import plain_text
from endpoints.keys.terms import DAYS_MAX, MAX_RATE, PERIODS, KeyTerms

GRACE_S_MAX = 30 * 24 * 3600


def _most(label: str, help_text: str) -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_RATE,
        label=label,
        help_text=f"{help_text} 0: no limit.",
    )


class TermsSerializer(serializers.Serializer[Any]):
    """Permissions, expiry and limits of a key."""

    models = serializers.ListField(
        child=serializers.CharField(max_length=256, validators=[plain_text]),
        required=False,
        max_length=100,
        label="Allowed models",
        help_text="One per line. Empty: all models and adapters.",
        style={"rows": 2},
    )
    pin = serializers.BooleanField(required=False, label="Allow pinning requests to a worker")
    control = serializers.BooleanField(
        required=False, label="Allow worker control paths, such as /sleep"
    )
    expires_at = serializers.DateTimeField(
        required=False, allow_null=True, default_timezone=UTC, help_text="Expiry time; null: none."
    )
    max_in_flight = _most("Concurrent requests", "Further requests are queued.")
    requests_per_minute = _most("Requests/min", "Requests above the limit get 429.")
    tokens_per_minute = _most("Tokens/min", "Prompt and completion tokens.")
    weight = serializers.FloatField(
        required=False,
        min_value=0.01,
        max_value=1000,
        help_text="Share of capacity while several keys queue; default 1.",
    )
    budget_tokens = _most("Token budget", "When exhausted, requests get 429 until the period ends.")
    budget_period = serializers.ChoiceField(
        choices=list(PERIODS), required=False, label="per (UTC)", help_text="A UTC day or month."
    )

    def validate_models(self, models: list[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(models))

    def validate_expires_at(self, end: datetime | None) -> datetime | None:
        now = timezone.now()
        if end is not None and not now < end <= now + timedelta(days=DAYS_MAX):
            text = "The time is in the past or too far in the future."
            raise serializers.ValidationError(text, "out_of_range")
        return end


class KeyChangeSerializer(TermsSerializer):
    expires_in_days = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=DAYS_MAX,
        help_text="Alternative to expires_at.",
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if "expires_in_days" in values:
            days = values.pop("expires_in_days")
            values["expires_at"] = None if days is None else timezone.now() + timedelta(days=days)
        return values


class WantedKeySerializer(KeyChangeSerializer):
    name = serializers.CharField(
        max_length=60, validators=[plain_text], help_text="For example the client application."
    )


class RotateSerializer(serializers.Serializer[Any]):
    grace_s = serializers.IntegerField(
        default=0,
        min_value=0,
        max_value=GRACE_S_MAX,
        help_text="Time for which the current secret stays valid (s).",
    )


class WantedGroupSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=60, validators=[plain_text])
    description = serializers.CharField(
        default="", max_length=200, validators=[plain_text], allow_blank=True
    )
    endpoints = serializers.ListField(child=serializers.CharField(), help_text="Endpoint names.")


def read_key(data: Any) -> tuple[str, KeyTerms]:
    """Return name and terms of a new key. Raise `Refused`."""
    values = read_body(WantedKeySerializer, data)
    return values.pop("name"), KeyTerms(**values)
