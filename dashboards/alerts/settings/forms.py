"""Form of rule settings; `validation` checks them."""

from __future__ import annotations

from typing import Any

from django import forms

from console.web.forms import ActionForm
from dashboards.alerts.rules.parameter import Parameter, format_duration
from dashboards.alerts.rules.rule import SEVERITIES, Rule, Setting

_SEVERITIES = [(severity, severity) for severity in SEVERITIES]
_UNITS = {
    "share": "Ratio from 0 to 1. ",
    "seconds": "Seconds. ",
    "celsius": "°C. ",
    "window": "Duration such as 5m. ",
}
_STATES = {"": None, "on": True, "off": False}


class SettingForm(ActionForm):
    """Form of a rule's setting. `mine`: own settings; `wide`: inherited ones, shown as placeholders
    of empty fields.
    """

    def __init__(self, rule: Rule, mine: Setting, wide: Setting, *args: Any) -> None:
        super().__init__(*args)
        for parameter in rule.parameters:
            self.fields[parameter.name] = _field(parameter, mine, wide)
        self.fields["for"] = forms.CharField(
            required=False,
            label="Duration (for)",
            initial="" if mine.lasting_s is None else format_duration(mine.lasting_s),
            help_text="Time the condition must hold before the alert fires: 90s, 5m, 1h.",
            widget=_placeholder(format_duration(wide.lasting_s or 0)),
        )
        self.fields["severity"] = forms.ChoiceField(
            required=False,
            label="Severity",
            initial=mine.severity,
            choices=[("", f"Default ({wide.severity})"), *_SEVERITIES],
            help_text="page: notify on call immediately. ticket: handle during working hours.",
        )
        off = "on" if wide.enabled else "off"
        self.fields["enabled"] = forms.ChoiceField(
            required=False,
            label="State",
            initial={None: "", True: "on", False: "off"}[mine.enabled],
            choices=[("", f"Default ({off})"), ("on", "on"), ("off", "off")],
        )

    def typed(self) -> dict[str, Any]:
        """Return all fields; an empty field resets its setting."""
        values = {name: self.text_of(name) or None for name in self.fields}
        return {**values, "enabled": _STATES.get(self.data.get("enabled", ""))}


def _field(one: Parameter, mine: Setting, wide: Setting) -> forms.Field:
    value = mine.values.get(one.name)
    fields: dict[str, Any] = {
        "required": False,
        "label": one.label,
        "initial": "" if value is None else _typed(one, value),
    }
    if one.choices:
        unchanged = f"Default ({one.shown(wide.values[one.name])})"
        choices = [("", unchanged), *((f"{c:g}", one.shown(c)) for c in one.choices)]
        return forms.ChoiceField(choices=choices, **fields)
    widget = _placeholder(_typed(one, wide.values[one.name]))
    return forms.CharField(
        widget=widget, help_text=f"{_UNITS.get(one.unit, '')}{one.bounds}", **fields
    )


def _typed(one: Parameter, value: float) -> str:
    return format_duration(int(value)) if one.unit == "window" else f"{value:g}"


def _placeholder(text: str) -> forms.TextInput:
    return forms.TextInput(attrs={"placeholder": text})
