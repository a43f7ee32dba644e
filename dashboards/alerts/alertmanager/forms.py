"""Forms of silences, receivers and routes; validated by the actions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.utils import timezone

from console.core.local_time import get_zone_name
from console.web.forms import ActionForm
from dashboards.alerts.alertmanager.config.receiver_kinds import KINDS, ReceiverField
from dashboards.alerts.alertmanager.models import Receiver
from dashboards.alerts.alertmanager.silences import Silence
from dashboards.alerts.page_forms import MONOSPACE, flag_field, text_field

CONDITIONS = (
    'One matcher per line, such as endpoint="chat", severity="page" or alertname=~"L2.*". '
    "All must match."
)
TEAM_HELP = 'team="research" stands for the endpoints of that team.'
DURATIONS = (
    ("30m", "30 minutes"),
    ("2h", "2 hours"),
    ("8h", "8 hours"),
    ("1d", "1 day"),
    ("3d", "3 days"),
    ("7d", "7 days"),
    ("30d", "30 days"),
)

_MOMENT = {"type": "datetime-local"}


class ValuesForm(ActionForm):
    """Form whose values an action validates. `given` returns the submitted values in the shape that
    the actions take.
    """

    def given(self) -> dict[str, Any]:
        return {name: self.text_of(name) for name in self.fields}


class SilenceForm(ValuesForm):
    """Empty times are left out: the action's defaults apply."""

    matchers = text_field(
        "Matchers", help_text=CONDITIONS, widget=forms.Textarea({"rows": 4, **MONOSPACE})
    )
    duration = forms.ChoiceField(label="Duration", choices=DURATIONS, initial="2h", required=False)
    starts_at = text_field(
        "Start", help_text="Leave empty to start now.", widget=forms.DateTimeInput(_MOMENT)
    )
    comment = text_field("Reason", help_text="Shown with the silence and in the audit log.")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["starts_at"].label = f"Start ({get_zone_name(timezone.localtime())})"

    def given(self) -> dict[str, Any]:
        times = ("starts_at", "ends_at", "duration")
        return {name: text for name, text in super().given().items() if text or name not in times}


class AcknowledgeForm(ValuesForm):
    alert = text_field("Rule", help_text="Name of the firing rule, such as HighTTFT.")
    endpoint = text_field("Endpoint", help_text="Leave empty for alerts without an endpoint.")
    note = text_field("Note", help_text="Optional. Shown beside the alert and in the audit log.")


class ChangeSilenceForm(SilenceForm):
    """Form of a pending or active silence; a chosen duration overrides the end time."""

    def __init__(self, silence: Silence, begun: bool, data: Any = None) -> None:
        initial = {
            "matchers": "\n".join(str(condition) for condition in silence.conditions),
            "starts_at": _typed(silence.starts_at),
            "ends_at": _typed(silence.ends_at),
            "duration": "",
            "comment": silence.reason,
        }
        super().__init__(data, initial=initial)
        self.before = initial
        length = self.fields["duration"]
        assert isinstance(length, forms.ChoiceField)
        length.choices = [("", "Until the end time below"), *DURATIONS]
        length.label = "Duration from now"
        self.fields["ends_at"] = text_field(
            f"End ({get_zone_name(timezone.localtime())})", widget=forms.DateTimeInput(_MOMENT)
        )
        if begun:
            del self.fields["starts_at"]
        else:
            self.fields["starts_at"].help_text = ""
        self.order_fields(["matchers", "starts_at", "duration", "ends_at", "comment"])

    def given(self) -> dict[str, Any]:
        """Return the changed values; the form's times have no seconds, so unchanged ones are left
        out.
        """
        changes = {
            key: value for key, value in super().given().items() if value != self.before[key]
        }
        if changes.get("duration"):
            changes.pop("ends_at", None)
        return changes


def _typed(moment: datetime) -> str:
    return timezone.localtime(moment).strftime("%Y-%m-%dT%H:%M")


class ReceiverForm(ValuesForm):
    """Fields of one kind of receiver. `known`: the receiver exists; an empty secret field then
    keeps the stored secret.
    """

    everything = flag_field(
        "Send all alerts",
        initial=True,
        help_text="Creates a route for all alerts. Without a route, nothing is sent.",
    )
    send_resolved = flag_field("Send resolved notifications", initial=True)
    enabled = flag_field("Enabled", initial=True)

    def __init__(self, kind: str, data: Any = None, *, known: Receiver | None = None) -> None:
        initial: dict[str, Any] | None = None
        if known is not None:
            flags = {"enabled": known.enabled, "send_resolved": known.send_resolved}
            initial = {**known.config, **flags}
        super().__init__(data, initial=initial)
        self.kind, self.known = kind, known
        fields: dict[str, forms.Field] = {}
        if known is None:
            fields["name"] = text_field(
                "Name", help_text="Lower-case letters, digits and hyphens, such as on-call."
            )
            del self.fields["enabled"]
        else:
            del self.fields["everything"]
        fields |= {field.name: _field(field, known) for field in KINDS[kind].fields}
        self.fields = {**fields, **self.fields}

    def given(self) -> dict[str, Any]:
        """Return the submitted values without empty secrets of an existing receiver."""
        secrets = {field.name for field in KINDS[self.kind].fields if field.secret}
        values: dict[str, Any] = {
            name: text
            for name, text in super().given().items()
            if text or self.known is None or name not in secrets
        }
        for name in ("everything", "enabled", "send_resolved"):
            if name in self.fields:
                values[name] = self.data.get(name) == "on"
        return values if self.known is not None else {**values, "kind": self.kind}


def _field(one: ReceiverField, known: Receiver | None) -> forms.Field:
    if not one.secret:
        return text_field(one.label, help_text=one.note)
    text = f"{one.note} Stored encrypted and never shown again.".strip()
    if known is not None and one.name in known.secrets:
        current = f" Current: {known.shown}." if one.url else ""
        text = f"{one.note}{current} Leave empty to keep the stored value.".strip()
    widget: forms.Widget = forms.PasswordInput({"autocomplete": "new-password"})
    if one.url:
        widget = forms.TextInput({"inputmode": "url", "spellcheck": "false"})
    return text_field(one.label, help_text=text, widget=widget)


class RouteForm(ValuesForm):
    receiver = forms.ChoiceField(label="Receiver", required=False)
    matchers = text_field(
        "Matchers",
        help_text=f"Leave empty for all alerts. {CONDITIONS} {TEAM_HELP}",
        widget=forms.Textarea({"rows": 3, **MONOSPACE}),
    )
    group_by = text_field(
        "Group by",
        initial="alertname, endpoint",
        help_text="Alerts with equal values of these labels share one notification.",
    )
    group_wait = text_field(
        "Group wait", initial="30s", help_text="Delay of the first notification of a group."
    )
    group_interval = text_field(
        "Group interval", initial="5m", help_text="Delay before changes of a group are sent."
    )
    repeat_interval = text_field(
        "Repeat interval", initial="4h", help_text="Repetition while alerts keep firing."
    )

    def __init__(self, receivers: list[str], *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        chosen: Any = self.fields["receiver"]
        chosen.choices = [(name, name) for name in receivers]
