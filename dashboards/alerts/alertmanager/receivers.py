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

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.audit.record import HIDDEN, diff, record
from console.core.errors import Gathered, Problem, Refused, expect_generation, expect_object
from console.core.outbound import url_problem
from console.vault import store
from dashboards.alerts.alertmanager import api_client, input_values, selectors, tasks
from dashboards.alerts.alertmanager.config.document import TEST_LABEL
from dashboards.alerts.alertmanager.config.receiver_kinds import KINDS, ReceiverField
from dashboards.alerts.alertmanager.models import Receiver, Route
from dashboards.prometheus.http.session import NoReplyError
from dashboards.prometheus.sources.selectors import Alertmanager

COMMON: Final = ("enabled", "send_resolved")
NO_MAIL_SERVER: Final = "No mail server is configured."
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,58}[a-z0-9])?")
_TEST_S: Final = 8.0
_REQUESTS = re.compile(
    r'^alertmanager_notification_requests(_failed)?_total\{integration="(\w+)"[^}]*\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class TestResult:
    """Outcome of a test alert. `sent`: None if Alertmanager reported no outcome in time."""

    sent: bool | None
    message: str


def create(actor: Any, data: Any) -> Receiver:
    """Create a receiver; `everything` adds a route for all alerts."""
    require(actor, "admin")
    gathered = Gathered()
    kind = gathered.take(_kind, expect_object(data)) or ""
    fields = _fields(kind) if kind else tuple(data)
    mapping = input_values.parse_mapping(data, ("name", "kind", "everything", *fields))
    name = gathered.take(_name, mapping) or ""
    made = Receiver(name=name, kind=kind, created_by=stored_actor(actor))
    everything = gathered.take(input_values.parse_flag, mapping, "everything", False)
    secrets = _take(made, mapping, gathered) if kind else {}
    gathered.end()
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            _keep(made, secrets)
            if everything:
                Route.objects.create(receiver=made, group_by=["alertname", "endpoint"])
            record(actor, "create", f"receiver/{name}", {"kind": kind, **facts(made)})
            tasks.sync.nudge()
    except IntegrityError:
        text = f"Receiver {name} exists already."
        remedy = "Choose another name, or edit the existing receiver."
        raise Refused(Problem("name", name, text, remedy, "taken"), status_code=409) from None
    return made


def change(actor: Any, name: str, data: Any, *, expected_generation: int | None = None) -> Receiver:
    """Set the given fields; omitted fields and empty secrets keep their values."""
    require(actor, "admin")
    with transaction.atomic():
        row = _locked(name, expected_generation)
        mapping = input_values.parse_mapping(data, _fields(row.kind))
        before = facts(row)
        gathered = Gathered()
        secrets = _take(row, mapping, gathered)
        gathered.end()
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
    integration = KINDS[row.kind].section.removesuffix("_configs")
    try:
        before = _requests(manager, integration)
        api_client.post_alerts(manager, [alert])
        return _outcome(manager, integration, before, name)
    except NoReplyError as error:
        raise api_client.refusal(manager, error) from None


def _outcome(
    manager: Alertmanager, integration: str, before: tuple[float, float], name: str
) -> TestResult:
    end = time.monotonic() + _TEST_S
    while time.monotonic() < end:
        time.sleep(0.25)
        requests, failed = _requests(manager, integration)
        if failed > before[1]:
            text = f"Test notification to {name} failed. See the log of alertmanager under System."
            return TestResult(False, text)
        if requests > before[0]:
            return TestResult(True, f"{name} accepted the test notification.")
    text = f"Alertmanager has not sent the test notification to {name} within {_TEST_S:.0f} s."
    return TestResult(None, f"{text} Its configuration may not be loaded yet.")


def _requests(manager: Alertmanager, integration: str) -> tuple[float, float]:
    """Return sent and failed requests of an integration, from Alertmanager's metrics."""
    if manager.why_not:
        raise NoReplyError(manager.why_not)
    body = manager.exchange("GET", "/metrics").body.decode(errors="replace")
    counts = {"": 0.0, "_failed": 0.0}
    for failed, name, value in _REQUESTS.findall(body):
        if name == integration:
            counts[failed] += float(value)
    return counts[""], counts["_failed"]


def _kind(given: Mapping[str, Any]) -> str:
    kind = input_values.parse_choice(given, "kind", KINDS, "webhook")
    _expect_version(kind)
    return kind


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


def _fields(kind: str) -> tuple[str, ...]:
    return (*(field.name for field in KINDS[kind].fields), *COMMON)


def _name(given: Mapping[str, Any]) -> str:
    name = input_values.parse_text(given, "name", 60, needed=True)
    if not _NAME.fullmatch(name) or name in ("new", "nobody"):
        remedy = "Use lower-case letters, digits and hyphens, as in on-call."
        raise Refused(Problem("name", name, "Invalid receiver name.", remedy, "name"))
    return name


def _take(row: Receiver, given: Mapping[str, Any], gathered: Gathered) -> dict[str, str]:
    """Write the values to the row and return those for the vault; add problems to `gathered`."""
    for name in COMMON:
        flag = gathered.take(input_values.parse_flag, given, name, getattr(row, name))
        setattr(row, name, bool(flag))
    if row.kind == "email" and not settings.MAIL.host:
        gathered.take(_refuse_mail)
    secrets: dict[str, str] = {}
    config = dict(row.config)
    for field in KINDS[row.kind].fields:
        if field.name not in given and (row.pk and not row._state.adding):
            continue
        value = gathered.take(_value, field, given, field.name in row.secrets)
        if field.secret:
            if value:
                secrets[field.name] = str(value)
        elif value in (None, ""):
            config.pop(field.name, None)
        else:
            config[field.name] = value
    row.config = config
    row.secrets = sorted({*row.secrets, *secrets})
    row.shown = _shown(row, secrets)[:300] or row.shown
    return secrets


def _value(field: ReceiverField, given: Mapping[str, Any], known: bool) -> str | int:
    """Return the value of a field. `known`: the vault has it, so that it may be left empty."""
    values = given
    if isinstance(given.get(field.name), list):
        values = {**given, field.name: ", ".join(map(str, given[field.name]))}
    elif isinstance(given.get(field.name), int) and field.number:
        values = {**given, field.name: str(given[field.name])}
    text = input_values.parse_text(values, field.name, 2000, needed=field.required and not known)
    if not text:
        return ""
    text_shown = HIDDEN if field.secret else text
    if field.url and (refused := url_problem(text, query=True)):
        remedy = "Enter a URL such as https://hooks.example.org/...."
        raise Refused(Problem(field.name, text_shown, refused, remedy, "url"))
    if field.number:
        if not re.fullmatch(r"-?\d{1,18}", text):
            problem = Problem(
                field.name, text_shown, "Not a number.", "Enter an integer.", "number"
            )
            raise Refused(problem)
        return int(text)
    if field.name == "to" and field.path == "to":
        _expect_addresses(text)
    if "\n" in text:
        problem = Problem(field.name, text_shown, "More than one line.", "Enter one line.", "text")
        raise Refused(problem)
    return text


def _expect_addresses(text: str) -> None:
    for address in text.split(","):
        try:
            validate_email(address.strip())
        except ValidationError:
            remedy = "Example: ops@example.org, separated by commas."
            problem = Problem("to", address.strip(), "Invalid e-mail address.", remedy, "email")
            raise Refused(problem) from None


def _refuse_mail() -> None:
    remedy = "Set EMBERLINE_SMTP_HOST and EMBERLINE_SMTP_SENDER."
    raise Refused(Problem("kind", "email", NO_MAIL_SERVER, remedy, "no_mail_server"))


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
    row = selectors.get_or_refuse(Receiver.objects.select_for_update(), "receiver", name=name)
    expect_generation(f"Receiver {name}", row.generation, expected)
    return row
