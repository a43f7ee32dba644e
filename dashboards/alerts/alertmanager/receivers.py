"""Receivers: validate, write, record, test. Admins only.

Secrets and secret URLs are stored only in the vault, never in a row, the audit log or a response.
Forbidden addresses are rejected before they are stored.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework import serializers

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.api.bodies import read_body
from console.audit.record import HIDDEN, diff, record
from console.core.errors import Problem, Refused, expect_generation, expect_object
from console.core.outbound import url_problem
from console.provisioners.local import programs
from console.validators import plain_text
from console.vault import store
from dashboards.alerts.alertmanager import api_client, selectors, tasks
from dashboards.alerts.alertmanager.config.document import TEST_LABEL
from dashboards.alerts.alertmanager.config.receiver_kinds import CHOICES, KINDS, ReceiverField
from dashboards.alerts.alertmanager.models import Receiver, Route
from dashboards.prometheus.http.session import NoReplyError
from dashboards.prometheus.sources.selectors import Alertmanager

COMMON: Final = ("send_resolved", "enabled")
NO_MAIL_SERVER: Final = "No mail server is configured."
_TEST_S: Final = 8.0
_LOG_LINES: Final = 1000
_ERROR = re.compile(r' err="((?:[^"\\]|\\.)*)"')
_REQUESTS = re.compile(
    r'^alertmanager_notification_requests(_failed)?_total\{integration="(\w+)"[^}]*\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class TestResult:
    """Outcome of a test alert. `sent`: None if Alertmanager reported no outcome in time."""

    sent: bool | None
    message: str


class ReceiverFields(serializers.Serializer[Receiver]):
    """What people set of a receiver of any kind, beside the fields of its kind."""

    send_resolved = serializers.BooleanField(
        required=False, initial=True, label="Send resolved notifications"
    )
    enabled = serializers.BooleanField(required=False, initial=True)


class NewReceiverFields(ReceiverFields):
    name = serializers.RegexField(
        r"^[a-z0-9](?:[a-z0-9-]{0,58}[a-z0-9])?\Z",
        help_text="Up to 60 lower-case letters, digits and hyphens, as in on-call.",
    )
    kind = serializers.ChoiceField(choices=CHOICES, default="webhook")
    everything = serializers.BooleanField(
        default=False,
        initial=True,
        label="Send all alerts",
        help_text="Creates a route for all alerts. Without a route, nothing is sent.",
    )

    def validate_name(self, name: str) -> str:
        if name in ("new", "nobody"):
            raise serializers.ValidationError("This name is reserved.", "name")
        return name


class _TextField(serializers.CharField):
    """A line of text; lists, as of recipients, are joined."""

    def to_internal_value(self, data: Any) -> str:
        return super().to_internal_value(
            ", ".join(map(str, data)) if isinstance(data, list) else data
        )


def make_fields(
    kind: str, base: type[ReceiverFields] = NewReceiverFields, known: Receiver | None = None
) -> type[serializers.Serializer[Receiver]]:
    """Return `base` with the fields of the kind. `known`: the receiver, whose stored secrets
    may stay empty.
    """
    fields = {field.name: _field(field, known) for field in KINDS[kind].fields}
    return type("KindFields", (base,), fields)


def _field(field: ReceiverField, known: Receiver | None) -> serializers.Field[Any, Any, Any, Any]:
    is_stored = known is not None and field.name in known.secrets
    needed = field.required and not is_stored
    options: dict[str, Any] = {"required": needed, "write_only": field.secret, "label": field.label}
    if field.number:
        return serializers.IntegerField(validators=[_check_number], help_text=field.note, **options)
    checks: list[Any] = [plain_text]
    hints, style = [field.note], {}
    if field.url:
        checks.append(_check_url)
        hints.append("Such as https://hooks.example.org/....")
        style = {"inputmode": "url", "spellcheck": "false"}
    elif field.name == "to" and field.path == "to":
        checks.append(_check_addresses)
    if is_stored and known is not None:
        hints += [f"Current: {known.shown}."] if field.url else []
        hints.append("Leave empty to keep the stored value.")
    elif field.secret:
        hints.append("Stored encrypted and never shown again.")
    if field.secret and not field.url:
        style = {"input_type": "password"}
    return _TextField(
        max_length=2000,
        allow_blank=not needed,
        validators=checks,
        help_text=" ".join(filter(None, hints)),
        style=style,
        **options,
    )


def _check_number(number: int) -> None:
    if abs(number) >= 2**63:
        raise ValidationError("The number is too large.", "too_large")


def _check_url(text: str) -> None:
    fault = url_problem(text, query=True) if text else ""
    if fault:
        raise ValidationError(fault, "url")


def _check_addresses(text: str) -> None:
    for address in filter(None, text.split(",")):
        validate_email(address.strip())


def create(actor: Any, data: Any) -> Receiver:
    """Create a receiver; `everything` adds a route for all alerts."""
    require(actor, "admin")
    kind = expect_object(data).get("kind", "webhook")
    if not isinstance(kind, str) or kind not in KINDS:
        own = NewReceiverFields().fields
        read_body(NewReceiverFields, {name: data[name] for name in own if name in data})
    _expect_version(kind)
    values = read_body(make_fields(kind), data)
    made = Receiver(name=values["name"], kind=kind, created_by=stored_actor(actor))
    secrets = _set(made, values)
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            _keep(made, secrets)
            if values["everything"]:
                Route.objects.create(receiver=made, group_by=["alertname", "endpoint"])
            record(actor, "create", f"receiver/{made.name}", {"kind": kind, **facts(made)})
            tasks.sync.nudge()
    except IntegrityError:
        text = f"Receiver {made.name} exists already."
        remedy = "Choose another name, or edit the existing receiver."
        raise Refused(Problem("name", made.name, text, remedy, "taken"), status_code=409) from None
    return made


def change(actor: Any, name: str, data: Any, *, expected_generation: int | None = None) -> Receiver:
    """Set the given fields; omitted fields and empty secrets keep their values."""
    require(actor, "admin")
    with transaction.atomic():
        row = _locked(name, expected_generation)
        fields = make_fields(row.kind, ReceiverFields, row)
        before = facts(row)
        secrets = _set(row, read_body(fields, data, partial=True))
        row.generation += 1
        row.changed_at = timezone.now()
        row.save()
        _keep(row, secrets)
        changes = diff(before, facts(row)) | {name: [HIDDEN, HIDDEN] for name in secrets}
        record(actor, "update", f"receiver/{name}", changes)
        tasks.sync.nudge()
    return row


def delete(actor: Any, name: str, *, expected_generation: int | None = None) -> None:
    """Delete the receiver and its routes."""
    require(actor, "admin")
    with transaction.atomic():
        row = _locked(name, expected_generation)
        for field in row.secrets:
            store.drop(row.secret_name(field))
        row.delete()
        record(actor, "delete", f"receiver/{name}", {})
        tasks.sync.nudge()


def send_test(actor: Any, name: str) -> TestResult:
    """Send a test alert for this receiver only, and wait for the outcome that Alertmanager
    counts for its kind.
    """
    require(actor, "admin")
    row = selectors.receiver(name)
    manager = api_client.own_alertmanager()
    if manager is None or settings.EMBERLINE.alertmanager_file is None:
        text = "The console writes no Alertmanager configuration, so it cannot test receivers."
        remedy = "Test it in the Alertmanager that has the receiver."
        raise Refused(Problem("", name, text, remedy, "no_alertmanager"), status_code=409)
    if not row.enabled:
        text = f"Receiver {name} is disabled."
        raise Refused(Problem("enabled", False, text, "Enable it.", "disabled"), status_code=409)
    record(actor, "test", f"receiver/{name}", {})
    now = timezone.now()
    alert = {
        "labels": {
            "alertname": "EmberlineTest",
            "severity": "ticket",
            TEST_LABEL: name,
            "sent": now.isoformat(timespec="milliseconds"),
        },
        "annotations": {
            "summary": "Test notification.",
            "description": f"Sent by {actor.get_username()}. No action needed.",
        },
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(seconds=60)).isoformat(),
    }
    try:
        return _Trial(manager, row).outcome_of(alert)
    except NoReplyError as error:
        raise api_client.refusal(manager, error) from None


class _Trial:
    """One test. Alertmanager counts requests by kind only; which receiver failed and why is in its
    log, where it runs on this machine.
    """

    def __init__(self, manager: Alertmanager, row: Receiver) -> None:
        self._manager, self._row = manager, row
        self._integration = KINDS[row.kind].section.removesuffix("_configs")

    def outcome_of(self, alert: dict[str, Any]) -> TestResult:
        name, old_lines = self._row.name, set(self._failure_lines())
        accepted, failed = _requests(self._manager, self._integration)
        api_client.post_alerts(self._manager, [alert])
        end = time.monotonic() + _TEST_S
        while time.monotonic() < end:
            time.sleep(0.25)
            now_accepted, now_failed = _requests(self._manager, self._integration)
            lines = [line for line in self._failure_lines() if line not in old_lines]
            if lines:
                why = self._without_secrets(_reason(lines[0]))
                return TestResult(False, f"Test notification to {name} failed: {why}")
            if now_accepted > accepted:
                return TestResult(True, f"{name} accepted the test notification.")
            if now_failed > failed and not _log():
                text = f"A {KINDS[self._row.kind].label} notification failed during the test."
                return TestResult(False, f"{text} See the log of Alertmanager for the receiver.")
        text = f"Alertmanager has not sent the test notification to {name} within {_TEST_S:.0f} s."
        return TestResult(None, f"{text} Its configuration may not be loaded yet.")

    def _failure_lines(self) -> list[str]:
        of_receiver = re.compile(rf' receiver={self._row.name} | err="{self._row.name}/')
        return [line for line in _log().splitlines() if of_receiver.search(line)]

    def _without_secrets(self, text: str) -> str:
        for field in self._row.secrets:
            if secret := store.get(self._row.secret_name(field)):
                text = text.replace(secret, HIDDEN)
        return text


def _log() -> str:
    """Return the end of Alertmanager's log, "" if it runs elsewhere."""
    return programs.tail(settings.EMBERLINE.var, "alertmanager", _LOG_LINES)


def _reason(line: str) -> str:
    """Return the error of a line in logfmt."""
    match = _ERROR.search(line)
    return match[1].replace(r"\"", '"').replace(r"\n", " ") if match else line[-200:]


def _requests(manager: Alertmanager, integration: str) -> tuple[float, float]:
    """Return accepted and failed requests of an integration, from Alertmanager's metrics."""
    if manager.why_not:
        raise NoReplyError(manager.why_not)
    body = manager.exchange("GET", "/metrics").body.decode(errors="replace")
    counts = {"": 0.0, "_failed": 0.0}
    for failed, name, value in _REQUESTS.findall(body):
        if name == integration:
            counts[failed] += float(value)
    return counts[""] - counts["_failed"], counts["_failed"]


def offered_kinds() -> dict[str, str]:
    """Return labels of the kinds that the running Alertmanager has; all if it is unknown."""
    manager = api_client.own_alertmanager()
    running = api_client.version(manager) if manager is not None else None
    return {
        name: kind.label for name, kind in KINDS.items() if running is None or kind.since <= running
    }


def _expect_version(kind: str) -> None:
    if kind not in offered_kinds():
        major, minor = KINDS[kind].since
        text = f"{KINDS[kind].label} needs Alertmanager {major}.{minor} or newer."
        remedy = "Update Alertmanager, or use a webhook."
        raise Refused(Problem("kind", kind, text, remedy, "unsupported"))


def _set(row: Receiver, values: Mapping[str, Any]) -> dict[str, str]:
    """Write the values to the row and return those for the vault."""
    if row.kind == "email" and not settings.MAIL.host:
        remedy = "Set EMBERLINE_SMTP_HOST and EMBERLINE_SMTP_FROM."
        raise Refused(Problem("kind", "email", NO_MAIL_SERVER, remedy, "no_mail_server"))
    for name in COMMON:
        setattr(row, name, values.get(name, getattr(row, name)))
    secrets: dict[str, str] = {}
    config = dict(row.config)
    for field in KINDS[row.kind].fields:
        value = values.get(field.name)
        if field.secret and value:
            secrets[field.name] = str(value)
        elif not field.secret and field.name in values:
            config[field.name] = value
    row.config = {name: value for name, value in config.items() if value not in (None, "")}
    row.secrets = sorted({*row.secrets, *secrets})
    row.shown = _shown(row, secrets)[:300] or row.shown
    return secrets


def _shown(row: Receiver, secrets: Mapping[str, str]) -> str:
    """Return the destination without secrets: the host of a URL, or the public fields."""
    urls = [field.name for field in KINDS[row.kind].fields if field.url and field.secret]
    for name in urls:
        if name in secrets:
            parts = urlsplit(secrets[name])
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"
    return "" if urls else ", ".join(str(value) for value in row.config.values())


def _keep(row: Receiver, secrets: Mapping[str, str]) -> None:
    for name, text in secrets.items():
        store.put(row.secret_name(name), text)


def facts(row: Receiver) -> dict[str, Any]:
    """Return the settable fields without secrets, and the destination."""
    common = {name: getattr(row, name) for name in COMMON}
    return {"shown": row.shown, **row.config, **common}


def _locked(name: str, expected: int | None) -> Receiver:
    rows = Receiver.objects.select_for_update(no_key=True)
    row = selectors.get_or_refuse(rows, "receiver", name=name)
    expect_generation(f"Receiver {name}", row.generation, expected)
    return row
