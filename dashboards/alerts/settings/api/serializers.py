"""Serializers of alert rules, their dry runs and alerts."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from dashboards.alerts.evaluation.dry_run import KEYS
from dashboards.alerts.evaluation.intervals import MOST_SHOWN
from dashboards.alerts.rules.rule import SEVERITIES
from dashboards.alerts.rules.rule_file import GROUPS, OWN_GROUP
from dashboards.alerts.settings.validation import SettingFields

GROUP_NAMES = [*GROUPS, OWN_GROUP]


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
    generation = serializers.IntegerField(help_text="0 until settings are saved.")
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
    own = serializers.DictField(help_text="Settings of this endpoint.")


class SetRuleSerializer(SettingFields):
    """Also accepts each of the rule's parameters by name, such as `threshold`."""

    threshold = serializers.FloatField(required=False, allow_null=True, help_text="null: default.")
    window = serializers.FloatField(required=False, allow_null=True, help_text="Seconds.")
    expr = serializers.CharField(required=False, help_text="Custom rules only.")
    summary = serializers.CharField(required=False, help_text="Custom rules only.")
    remedy = serializers.CharField(required=False, help_text="Custom rules only.")


class AlertSerializer(serializers.Serializer[Any]):
    alert = serializers.CharField(source="name")
    state = serializers.ChoiceField(choices=("firing", "pending"))
    severity = serializers.CharField()
    endpoint = serializers.CharField()
    worker = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())
    value = serializers.FloatField(allow_null=True, help_text="Current value, if known.")
    since = serializers.DateTimeField(allow_null=True)
    summary = serializers.CharField()
    remedy = serializers.CharField()


class RuleFileSerializer(serializers.Serializer[Any]):
    rule_file = serializers.CharField(help_text="For Prometheus' rule_files, as YAML.")
    prometheus_rule = serializers.CharField(help_text="The same as a PrometheusRule object.")
    state = serializers.CharField(help_text="State in the bundled Prometheus; empty without one.")
    message = serializers.CharField(help_text="Reason for the rejection.")


class TryRuleSerializer(SetRuleSerializer):
    range = serializers.ChoiceField(
        choices=KEYS, required=False, help_text="Evaluated range; default: 24h."
    )


class RuleFiredSerializer(serializers.Serializer[Any]):
    about = serializers.CharField(help_text="Labels of the alert, endpoint first.")
    times = serializers.IntegerField()
    firing_s = serializers.IntegerField()
    longest_s = serializers.IntegerField()
    last = serializers.DateTimeField(allow_null=True, help_text="Last time it would have fired.")
    firing = serializers.BooleanField(
        source="still", help_text="Still firing at the end of the range."
    )
    unsure = serializers.IntegerField(
        help_text="Number of times the condition held close to the rule's duration."
    )


class RuleVerdictSerializer(serializers.Serializer[Any]):
    times = serializers.IntegerField(help_text="Number of times it would have fired.")
    firing_s = serializers.IntegerField(help_text="Total firing time of all alerts (s).")
    unsure = serializers.IntegerField()
    enabled = serializers.BooleanField(help_text="false: the rule is disabled.")
    about = RuleFiredSerializer(
        many=True, source="longest", help_text=f"At most {MOST_SHOWN}, the longest first."
    )


class RuleTrialSerializer(RuleVerdictSerializer):
    range = serializers.ChoiceField(choices=KEYS)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step_s = serializers.IntegerField(help_text="Evaluation interval (s).")
    for_s = serializers.IntegerField()
    now = RuleVerdictSerializer(
        allow_null=True,
        help_text="Result with the current settings; null: unchanged, or a new rule.",
    )
    known_s = serializers.IntegerField(help_text="Part of the range with samples (s).")
    measured_s = serializers.IntegerField(
        allow_null=True,
        help_text="Part of the range with samples of the measured metric (s); null: unknown.",
    )
    left = serializers.IntegerField(help_text="Endpoint groups not evaluated.")
    missing = serializers.ListField(
        child=serializers.CharField(),
        help_text="Metrics sources that did not respond, with the reason.",
    )
