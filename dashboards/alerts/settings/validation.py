"""Input of rule settings and user-written rules, for forms, REST and command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rest_framework import serializers

from console.api.bodies import read_body
from console.core.errors import Refused
from console.validators import plain_text
from console.web.forms import MONOSPACE
from dashboards.alerts.fields import DurationField
from dashboards.alerts.rules.parameter import Parameter, parse_duration
from dashboards.alerts.rules.rule import SEVERITIES, Rule, Setting
from dashboards.alerts.rules.rule_file import BY_NAME, PLACEHOLDER
from dashboards.prometheus.http.user_query import refuse_unselective

LONGEST_S: Final = 7 * 86_400
LASTING_S: Final = 300  # default of user-written rules


def _lasting(**options: Any) -> DurationField:
    return DurationField(0, LONGEST_S, source="lasting_s", required=False, **options)


class _ParameterField(serializers.Field[Any, Any, float, Any]):
    """A number, or a duration as text."""

    def __init__(self, parameter: Parameter) -> None:
        super().__init__(required=False, allow_null=True, help_text=parameter.bounds)
        self.parameter = parameter

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, str):
            try:
                data = float(data)
            except ValueError:
                data = parse_duration(data)
        fault = self.parameter.fault(data)
        if fault:
            raise serializers.ValidationError(fault, "out_of_bounds")
        return float(data)

    def to_representation(self, value: float) -> float:
        return value


class SettingFields(serializers.Serializer[Any]):
    """Settings that every rule has; null resets one."""

    severity = serializers.ChoiceField(choices=SEVERITIES, required=False, allow_null=True)
    enabled = serializers.BooleanField(required=False, allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """Add `for`, a Python keyword."""
        return {**super().get_fields(), "for": _lasting(allow_null=True)}


def check_placeholders(text: str) -> None:
    if "{{" in PLACEHOLDER.sub("", text):
        reason = "Braces may hold {{ $labels.NAME }} and {{ $value }} only."
        raise serializers.ValidationError(reason, "template")


class UserRuleFields(serializers.Serializer[Any]):
    name = serializers.RegexField(
        r"^[A-Za-z_][A-Za-z0-9_]{2,79}\Z",
        help_text="3 to 80 letters, digits or underscores, not starting with a digit.",
    )
    expr = serializers.CharField(
        max_length=4000,
        label="Condition",
        help_text="PromQL. Each resulting series is an alert; the label endpoint assigns it.",
        style={"rows": 4, **MONOSPACE},
    )
    summary = serializers.CharField(
        max_length=200,
        validators=[plain_text, check_placeholders],
        help_text="Short description, shown with the alert. {{ $labels.NAME }} is one of its "
        "labels, {{ $value }} its value.",
    )
    remedy = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=2000,
        validators=[check_placeholders],
        style={"rows": 2},
    )
    severity = serializers.ChoiceField(choices=SEVERITIES, default="ticket", initial="ticket")
    enabled = serializers.BooleanField(default=True, initial=True)

    def get_fields(self) -> dict[str, Any]:
        lasting = _lasting(
            label="Duration (for)",
            initial="5m",
            help_text="Time the condition must hold before the alert fires: 90s, 5m, 1h.",
        )
        return {**super().get_fields(), "for": lasting}

    def validate_name(self, name: str) -> str:
        if name in BY_NAME:
            raise serializers.ValidationError("A built-in rule has this name.", "taken")
        return name


def validate_setting(rule: Rule, before: Setting, fields: Mapping[str, Any]) -> Setting:
    """Return `before` with the submitted fields; null or empty resets one. Raise `Refused`."""
    parameters = {parameter.name: _ParameterField(parameter) for parameter in rule.parameters}
    read = read_body(
        type("RuleFields", (SettingFields,), parameters),
        {name: None if value == "" else value for name, value in fields.items()},
    )
    values = {**before.values, **read}
    return Setting(
        {
            parameter.name: values[parameter.name]
            for parameter in rule.parameters
            if values.get(parameter.name) is not None
        },
        read.get("lasting_s", before.lasting_s),
        read.get("severity", before.severity) or "",
        read.get("enabled", before.enabled),
    )


def validate_user_rule(fields: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Return the columns of a user-written rule; `whole`: a new one. Raise `Refused`."""
    columns = read_body(UserRuleFields, fields, partial=not whole)
    vague = refuse_unselective(columns.get("expr", ""), "expr")
    if vague:
        raise Refused(vague)
    return columns
