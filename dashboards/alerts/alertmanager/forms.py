"""Forms of silences, whose times depend on the viewer and the present state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.utils import timezone

from console.core.local_time import get_zone_name
from console.web.serializer_form import SerializerForm
from dashboards.alerts.alertmanager.silence_fields import SilenceFields
from dashboards.alerts.alertmanager.silences import Silence

DURATIONS = (
    ("30m", "30 minutes"),
    ("2h", "2 hours"),
    ("8h", "8 hours"),
    ("1d", "1 day"),
    ("3d", "3 days"),
    ("7d", "7 days"),
    ("30d", "30 days"),
)
_TIMES = ("starts_at", "ends_at", "duration")


class SilenceForm(SerializerForm):
    """Empty times are left out: the action's defaults apply."""

    def __init__(self, data: Any = None, values: Any = None) -> None:
        names = ("matchers", "duration", "starts_at", "comment")
        super().__init__(SilenceFields(), data, values, names)
        self.fields["duration"] = forms.ChoiceField(
            label="Duration", choices=DURATIONS, initial="2h", required=False
        )
        self.fields["starts_at"].label = f"Start ({_zone()})"
        self.fields["starts_at"].help_text = "Leave empty to start now."

    def typed(self) -> dict[str, Any]:
        return {name: text for name, text in super().typed().items() if text or name not in _TIMES}


class ChangeSilenceForm(SerializerForm):
    """Form of a pending or active silence; a chosen duration overrides the end time."""

    def __init__(self, silence: Silence, begun: bool, data: Any = None) -> None:
        values = {
            "matchers": [str(condition) for condition in silence.conditions],
            "starts_at": _typed(silence.starts_at),
            "ends_at": _typed(silence.ends_at),
            "comment": silence.reason,
        }
        names = ["matchers", "starts_at", "duration", "ends_at", "comment"]
        if begun:
            names.remove("starts_at")
        super().__init__(SilenceFields(), data, values, names)
        self.fields["duration"] = forms.ChoiceField(
            label="Duration from now",
            choices=[("", "Until the end time below"), *DURATIONS],
            required=False,
        )
        for name, label in (("starts_at", "Start"), ("ends_at", "End")):
            if name in self.fields:
                self.fields[name].label, self.fields[name].help_text = f"{label} ({_zone()})", ""

    def typed(self) -> dict[str, Any]:
        """Return the changed values; the form's times have no seconds, so unchanged ones are left
        out.
        """
        changes = {
            name: value
            for name, value in super().typed().items()
            if value != self.initial.get(name, "")
        }
        if changes.get("duration"):
            changes.pop("ends_at", None)
        return changes


def _zone() -> str:
    return get_zone_name(timezone.localtime())


def _typed(moment: datetime) -> str:
    return timezone.localtime(moment).strftime("%Y-%m-%dT%H:%M")
