"""Serializer fields of alerts: durations, label matchers, label names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from dashboards.alerts.alertmanager.config import matchers
from dashboards.alerts.alertmanager.config.matchers import Matchers
from dashboards.alerts.cluster_objects.objects.manifests import OWN_LABELS
from dashboards.alerts.rules.parameter import format_duration, parse_duration
from endpoints.spec.validators import key_values_problem

MATCHERS: Final = (
    'One matcher per line, such as endpoint="chat", severity="page" or alertname=~"L2.*". '
    "All must match."
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_MOST_NAMES, _MOST_LABELS = 10, 20


@extend_schema_field(OpenApiTypes.STR)
class DurationField(serializers.Field[int, Any, str, Any]):
    """Seconds, sent as a number or as a Prometheus duration such as 1h30m."""

    def __init__(self, low_s: int, high_s: int, **options: Any) -> None:
        span = f"from {format_duration(low_s)} to {format_duration(high_s)}"
        self.remedy = f"Use a duration such as 30m, 2h or 1h30m, {span}."
        options.setdefault("help_text", self.remedy)
        super().__init__(**options)
        self.low_s, self.high_s = low_s, high_s

    def to_internal_value(self, data: Any) -> int:
        seconds = data if isinstance(data, int) and not isinstance(data, bool) else None
        if isinstance(data, str):
            seconds = parse_duration(data)
        if seconds is None or not self.low_s <= seconds <= self.high_s:
            raise ValidationError("Invalid duration.", "duration")
        return seconds

    def to_representation(self, value: int) -> str:
        return format_duration(value)


@extend_schema_field({"type": "array", "items": {"type": "string"}})
class MatchersField(serializers.Field[Any, Any, list[str], Any]):
    """Label matchers: a list, or a text with one a line."""

    remedy = matchers.EXAMPLE

    def to_internal_value(self, data: Any) -> Matchers:
        try:
            return matchers.parse(data)
        except ValueError as error:
            raise ValidationError(str(error), "matcher") from None

    def to_representation(self, value: Matchers) -> list[str]:
        return [str(matcher) for matcher in value]


@extend_schema_field({"type": "array", "items": {"type": "string"}})
class LabelNamesField(serializers.Field[list[str], Any, list[str], Any]):
    """Label names: a list, or a text with commas or spaces between them."""

    remedy = f"Use at most {_MOST_NAMES} label names, such as alertname, endpoint."

    def to_internal_value(self, data: Any) -> list[str]:
        listed = re.split(r"[\s,]+", data.strip()) if isinstance(data, str) else data
        if not isinstance(listed, list) or len(listed) > _MOST_NAMES:
            raise ValidationError(f"Not a list of at most {_MOST_NAMES} labels.", "labels")
        labels = [label for label in listed if label != ""]
        if not all(isinstance(label, str) and _LABEL.fullmatch(label) for label in labels):
            raise ValidationError("Invalid label name.", "labels")
        return list(dict.fromkeys(labels))

    def to_representation(self, value: list[str]) -> list[str]:
        return list(value)


def check_object_labels(labels: Mapping[str, str]) -> None:
    """Raise ValidationError unless the labels can be set on alert objects."""
    if len(labels) > _MOST_LABELS:
        raise ValidationError(f"At most {_MOST_LABELS} labels are allowed.", "too_many")
    wrong = key_values_problem(labels)
    if wrong is not None:
        raise ValidationError(f"{wrong[0]} {wrong[1]}", wrong[2])
    for name, value in labels.items():
        if not _LABEL_VALUE.fullmatch(value):
            text = f"{value[:80]!r} cannot be the value of a label."
            remedy = "Use at most 63 letters, digits, dots, dashes and underscores."
            raise ValidationError(f"{text} {remedy}", "invalid_value")
        if name in OWN_LABELS:
            text = f"{name} says that the object is this console's. Remove it."
            raise ValidationError(text, "taken")
