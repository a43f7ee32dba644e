"""Serializers of alert rules, their dry runs and alerts."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from dashboards.alerts.evaluation.dry_run import KEYS
from dashboards.alerts.evaluation.intervals import MOST_SHOWN
from dashboards.alerts.rules.rule import SEVERITIES
from dashboards.alerts.rules.rule_file import GROUPS, OWN_GROUP

GROUP_NAMES = [*GROUPS, OWN_GROUP]
_DURATION = "Such as 90s, 5m or 1h, or a number of seconds; null: the default."


class ParameterSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    unit = serializers.CharField()
    value = serializers.FloatField()
    shown = serializers.CharField(help_text="Formatted value.")
    low = serializers.FloatField()
    high = serializers.FloatField()
    choices = serializers.ListField(
        child=serializers.FloatField(), help_text="Allowed values; empty: any in range."
    )

    def get_fields(self) -> dict[str, Any]:
        """Add `label` and `default` here: as attributes of serializers they cannot be declared."""
        return {
            **super().get_fields(),
            "label": serializers.CharField(),
            "default": serializers.FloatField(),
        }


class CommonSerializer(serializers.Serializer[Any]):
    summary = serializers.CharField(help_text="Summary with the effective parameters.")
    for_s = serializers.IntegerField(help_text="Time the condition must hold (s).")
    severity = serializers.ChoiceField(choices=SEVERITIES)
    enabled = serializers.BooleanField()
    parameters = ParameterSerializer(many=True)
    generation = serializers.IntegerField(help_text="0 while nothing is set.")
    changed_by = serializers.CharField()
    changed_at = serializers.DateTimeField(allow_null=True)


class AlertRuleSerializer(CommonSerializer):
    name = serializers.CharField()
    group = serializers.ChoiceField(choices=GROUP_NAMES)
    origin = serializers.ChoiceField(choices=("built-in", "own"))
    remedy = serializers.CharField()
    needs = serializers.CharField(help_text="Required exporter; without it the rule never fires.")
    per_endpoint = serializers.BooleanField(help_text="Accepts settings per endpoint.")
    endpoints = serializers.ListField(
        child=serializers.CharField(), help_text="Visible endpoints with own settings."
    )
    expr = serializers.CharField(help_text="PromQL with the platform-wide settings.")
    changed = serializers.BooleanField(help_text="Differs from the defaults.")


class EndpointRuleSerializer(CommonSerializer):
    rule = serializers.CharField()
    endpoint = serializers.CharField()
    own = serializers.DictField(help_text="What is set for this endpoint alone.")


class SetRuleSerializer(serializers.Serializer[Any]):
    """Also accepts each of the rule's parameters by name, such as `threshold`."""

    severity = serializers.ChoiceField(choices=SEVERITIES, required=False, allow_null=True)
    enabled = serializers.BooleanField(required=False, allow_null=True)
    threshold = serializers.FloatField(required=False, allow_null=True, help_text="null: default.")
    window = serializers.FloatField(required=False, allow_null=True, help_text="Seconds.")
    expr = serializers.CharField(required=False, help_text="Of a rule of your own only.")
    summary = serializers.CharField(required=False, help_text="Of a rule of your own only.")
    remedy = serializers.CharField(required=False, help_text="Of a rule of your own only.")

    def get_fields(self) -> dict[str, Any]:
        """Add `for`, a Python keyword."""
        return {**super().get_fields(), "for": _duration()}


class NewRuleSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="3 to 80 letters, digits and underscores.")
    expr = serializers.CharField(help_text="PromQL: each series it finds is an alert.")
    summary = serializers.CharField(max_length=200)
    remedy = serializers.CharField(required=False, default="", allow_blank=True)
    severity = serializers.ChoiceField(choices=SEVERITIES, required=False, default="ticket")
    enabled = serializers.BooleanField(required=False, default=True)

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "for": _duration()}


class AlertSerializer(serializers.Serializer[Any]):
    alert = serializers.CharField(source="name")
    state = serializers.ChoiceField(choices=("firing", "pending"))
    severity = serializers.CharField()
    endpoint = serializers.CharField()
    worker = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())
    value = serializers.FloatField(allow_null=True, help_text="What is measured now, where known.")
    since = serializers.DateTimeField(allow_null=True)
    summary = serializers.CharField()
    remedy = serializers.CharField()


class RuleFileSerializer(serializers.Serializer[Any]):
    rule_file = serializers.CharField(help_text="For Prometheus' rule_files, as YAML.")
    prometheus_rule = serializers.CharField(help_text="The same as a PrometheusRule object.")
    state = serializers.CharField(help_text="In our own Prometheus; empty where there is none.")
    message = serializers.CharField(help_text="Why it was refused.")


class TryRuleSerializer(SetRuleSerializer):
    range = serializers.ChoiceField(
        choices=KEYS, required=False, help_text="How far back is looked; without: 24h."
    )


class RuleFiredSerializer(serializers.Serializer[Any]):
    about = serializers.CharField(help_text="Whom: the endpoint first, where it has one.")
    times = serializers.IntegerField()
    firing_s = serializers.IntegerField()
    longest_s = serializers.IntegerField()
    last = serializers.DateTimeField(allow_null=True, help_text="When it fired last.")
    firing = serializers.BooleanField(source="still", help_text="It would fire still.")
    unsure = serializers.IntegerField(
        help_text="How often its condition was seen too briefly to tell whether it fired."
    )


class RuleVerdictSerializer(serializers.Serializer[Any]):
    times = serializers.IntegerField(help_text="How often it would have fired.")
    firing_s = serializers.IntegerField(help_text="For how long, all alerts together.")
    unsure = serializers.IntegerField()
    enabled = serializers.BooleanField(help_text="false: it would fire only if it were on.")
    about = RuleFiredSerializer(
        many=True, source="longest", help_text=f"At most {MOST_SHOWN}, the longest first."
    )


class RuleTrialSerializer(RuleVerdictSerializer):
    range = serializers.ChoiceField(choices=KEYS)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step_s = serializers.IntegerField(help_text="How far apart the looks at the condition are.")
    for_s = serializers.IntegerField()
    now = RuleVerdictSerializer(
        allow_null=True, help_text="With the numbers as they are; null: the same, or no rule yet."
    )
    known_s = serializers.IntegerField(help_text="For how long of it anything was scraped.")
    measured_s = serializers.IntegerField(
        allow_null=True, help_text="For how long there was what it measures; null: not known."
    )
    left = serializers.IntegerField(help_text="Groups of endpoints that were not looked at.")
    missing = serializers.ListField(
        child=serializers.CharField(), help_text="Sources which did not answer, and why."
    )


def _duration() -> Any:
    return serializers.CharField(required=False, allow_null=True, help_text=_DURATION)
