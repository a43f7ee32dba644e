"""Input of silences and acknowledgements, for forms, REST and command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rest_framework import serializers

from console.validators import plain_text
from console.web.forms import MONOSPACE
from dashboards.alerts.alertmanager.config import matchers
from dashboards.alerts.alertmanager.config.document import TEAM
from dashboards.alerts.alertmanager.config.matchers import Matchers
from dashboards.alerts.fields import MATCHERS, DurationField, MatchersField

LONGEST = timedelta(days=90)


def _duration(help_text: str) -> DurationField:
    longest = int(LONGEST.total_seconds())
    return DurationField(60, longest, required=False, help_text=help_text)


class SilenceFields(serializers.Serializer[Any]):
    """What people set of a silence. `duration` counts from now, or from a later start."""

    matchers = MatchersField(help_text=MATCHERS, style={"rows": 4, **MONOSPACE})
    starts_at = serializers.DateTimeField(
        required=False,
        label="Start",
        help_text="Leave empty to start now. Cannot be changed after the start.",
    )
    ends_at = serializers.DateTimeField(
        required=False, label="End", help_text="Alternative to duration."
    )
    duration = _duration("Default 2h.")
    comment = serializers.CharField(
        max_length=500,
        validators=[plain_text],
        label="Reason",
        help_text="Shown with the silence and in the audit log.",
    )

    def validate_matchers(self, conditions: Matchers) -> Matchers:
        if not conditions or matchers.matches(conditions, {}):
            raise serializers.ValidationError("The matchers would match every alert.", "too_wide")
        if any(condition.name == TEAM for condition in conditions):
            text = "Alerts have no label team. Match endpoints instead."
            raise serializers.ValidationError(text, "team")
        return conditions


class AcknowledgementFields(serializers.Serializer[Any]):
    alert = serializers.CharField(
        max_length=80, label="Rule", help_text="Name of the firing rule, such as HighTTFT."
    )
    endpoint = serializers.CharField(
        default="", allow_blank=True, help_text="Leave empty for alerts without an endpoint."
    )
    note = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=490,
        validators=[plain_text],
        help_text="Optional. Shown beside the alert and in the audit log.",
    )
    duration = _duration("Longest time, default 7d; ends when resolved.")
