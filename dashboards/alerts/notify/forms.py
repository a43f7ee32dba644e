"""Forms of silences, receivers and routes; validated by the actions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.utils import timezone

from console.core.local_time import get_zone_name
from console.web.forms import ActionForm
from dashboards.alerts.notify.models import ReceiverKind, Silence
from dashboards.alerts.page_forms import MONOSPACE, flag_field, text_field

CONDITIONS = (
    'One matcher per line, such as endpoint="chat", severity="page", alertname=~"L2.*" or '
    'team!="research". All must match.'
)
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
    """`given` returns the submitted values in the shape that the actions take."""

    def given(self) -> dict[str, Any]:
        return {name: self.text_of(name) for name in self.fields}


class SilenceForm(ValuesForm):
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


class AcknowledgeForm(ValuesForm):
    alert = text_field("Rule", help_text="Name of the firing rule, such as HighTTFT.")
    endpoint = text_field("Endpoint", help_text="Leave empty for alerts without an endpoint.")
    note = text_field("Note", help_text="Optional. Shown beside the alert and in the audit log.")


class ChangeSilenceForm(SilenceForm):
    """Form of a pending or active silence; a chosen duration overrides the end time."""

    def __init__(self, silence: Silence, begun: bool, data: Any = None) -> None:
        shown = {
            "matchers": "\n".join(str(one) for one in silence.conditions),
            "starts_at": _typed(silence.starts_at),
            "ends_at": _typed(silence.ends_at),
            "duration": "",
            "comment": silence.comment,
        }
        super().__init__(data, initial=shown)
        self.before = shown
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
    enabled = flag_field("Enabled", initial=True)

    def __init__(self, kind: str, data: Any = None, *, known: Any = None) -> None:
        shown = {"to": ", ".join(known.to), "enabled": known.enabled} if known else None
        super().__init__(data, initial=shown)
        self.kind, self.known = kind, known
        fields: dict[str, forms.Field] = {}
        if known is None:
            fields["name"] = text_field(
                "Name", help_text="Lower-case letters, digits and hyphens, such as on-call."
            )
            del self.fields["enabled"]
        else:
            del self.fields["everything"]
        fields |= _of_kind(kind, known)
        self.fields = {**fields, **self.fields}

    def given(self) -> dict[str, Any]:
        """Return the submitted values without empty secrets of an existing receiver."""
        found: dict[str, Any] = {
            name: text for name, text in super().given().items() if text or self.known is None
        }
        for name in ("everything", "enabled"):
            if name in self.fields:
                found[name] = self.data.get(name) == "on"
        return found if self.known is not None else {**found, "kind": self.kind}


def _of_kind(kind: str, known: Any) -> dict[str, forms.Field]:
    if kind == ReceiverKind.EMAIL:
        text = "Separated by commas. Sent through the console's SMTP server."
        return {"to": text_field("Recipients", help_text=text)}
    keep = f"Current: {known.shown}. Leave empty to keep it." if known is not None else ""
    url = text_field(
        "URL",
        help_text=keep or "Stored encrypted and never shown again.",
        widget=forms.TextInput({"inputmode": "url", "spellcheck": "false"}),
    )
    if kind == ReceiverKind.SLACK:
        return {"url": url}
    keep = (
        "A secret is stored. Leave empty to keep it. " if known is not None and known.signed else ""
    )
    secret = text_field(
        "Shared secret",
        help_text=f"{keep}Optional. Signs each message (X-Emberline-Signature).",
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
    )
    return {"url": url, "secret": secret}


class RouteForm(ValuesForm):
    receiver = forms.ChoiceField(label="Receiver", required=False)
    matchers = text_field(
        "Matchers",
        help_text=f"Leave empty for all alerts. {CONDITIONS}",
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
    send_resolved = flag_field("Send resolved notifications", initial=True)

    def __init__(self, receivers: list[str], *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        chosen: Any = self.fields["receiver"]
        chosen.choices = [(name, name) for name in receivers]

    def given(self) -> dict[str, Any]:
        found: dict[str, Any] = super().given()
        return {**found, "send_resolved": self.data.get("send_resolved") == "on"}
