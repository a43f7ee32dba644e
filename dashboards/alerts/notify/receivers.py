"""Receivers: validate, write, record. Admins only.

Secrets and secret URLs are stored only in the vault, never in a row, the audit log or a response.
Forbidden addresses are rejected before they are stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.audit.record import HIDDEN, record
from console.core.errors import Gathered, Problem, Refused, expect_generation
from console.core.outbound import url_problem
from console.vault import store
from dashboards.alerts.notify import deliveries, input_values, selectors
from dashboards.alerts.notify.models import Delivery, Receiver, ReceiverKind, Route
from dashboards.alerts.notify.protocol import http_post, message
from dashboards.alerts.notify.protocol.alert import Alert

FIELDS: Final = ("name", "kind", "url", "secret", "to", "enabled", "everything")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,58}[a-z0-9])?")
_MOST_TO, _LEAST_SECRET = 20, 16


def create(actor: Any, data: Any) -> Receiver:
    """Create a receiver; `everything` adds a route for all alerts."""
    require(actor, "admin")
    given = input_values.parse_mapping(data, FIELDS)
    gathered = Gathered()
    name = gathered.take(_name, given) or ""
    kind = gathered.take(
        input_values.parse_choice, given, "kind", ReceiverKind.values, ReceiverKind.WEBHOOK
    )
    made = Receiver(name=name, kind=kind or "", created_by=stored_actor(actor))
    everything = gathered.take(input_values.parse_flag, given, "everything", False)
    secrets = (_take(made, given, gathered, new=True) if kind else None) or {}
    gathered.end()
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            _keep(made, secrets)
            if everything:
                Route.objects.create(receiver=made, group_by=["alertname", "endpoint"])
            facts = {"kind": made.kind, "where": made.shown, "to": made.to}
            record(actor, "create", f"receiver/{name}", facts)
    except IntegrityError:
        text = f"Receiver {name} exists already."
        remedy = "Choose another name, or edit the existing receiver."
        raise Refused(Problem("name", name, text, remedy, "taken"), status_code=409) from None
    return made


def change(actor: Any, name: str, data: Any, *, expected: int | None = None) -> Receiver:
    """Set the given fields; omitted fields and secrets keep their values."""
    require(actor, "admin")
    given = input_values.parse_mapping(data, ("url", "secret", "to", "enabled"))
    with transaction.atomic():
        found = _locked(name, expected)
        before = _facts(found)
        gathered = Gathered()
        secrets = _take(found, given, gathered, new=False)
        gathered.end()
        found.generation += 1
        found.changed_at = timezone.now()
        found.save()
        _keep(found, secrets)
        changes = {k: [before[k], v] for k, v in _facts(found).items() if before[k] != v}
        changes |= {name: [HIDDEN, HIDDEN] for name in secrets}
        record(actor, "change", f"receiver/{name}", changes)
    return found


def delete(actor: Any, name: str, *, expected: int | None = None) -> None:
    """Delete the receiver and its routes; its deliveries stay in the history."""
    require(actor, "admin")
    with transaction.atomic():
        found = _locked(name, expected)
        for secret in deliveries.vault_names(found).values():
            store.drop(secret)
        found.delete()
        record(actor, "delete", f"receiver/{name}", {})


def send_test(actor: Any, name: str) -> Delivery:
    """Send a test message in one immediate attempt; the delivery holds the result."""
    require(actor, "admin")
    found = selectors.receiver(name)
    labels = {"alertname": "EmberlineTest", "severity": "ticket"}
    notes = {
        "summary": "Test notification.",
        "description": f"Sent by {actor.get_username()}. No action needed.",
    }
    alert = Alert(labels, notes, timezone.now())
    body = message.build_document(name, f"test:{found.pk}", labels, [alert], settings.PUBLIC_URL)
    with transaction.atomic():
        made = Delivery.objects.create(
            receiver=found,
            receiver_name=name,
            kind=found.kind,
            title=message.format_title(body),
            body=body,
            test=True,
        )
        record(actor, "test", f"receiver/{name}", {"delivery": str(made.pk)})
    deliveries.attempt_delivery(made.pk)
    made.refresh_from_db()
    return made


def _name(given: Mapping[str, Any]) -> str:
    name = input_values.parse_text(given, "name", 60, needed=True)
    if not _NAME.fullmatch(name) or name == "new":
        remedy = "Use lower-case letters, digits and hyphens, as in on-call."
        raise Refused(Problem("name", name, "Invalid receiver name.", remedy, "name"))
    return name


def _take(
    receiver: Receiver, given: Mapping[str, Any], gathered: Gathered, *, new: bool
) -> dict[str, str]:
    """Write the values to the row and return those for the vault; add problems to `gathered`."""
    enabled = gathered.take(input_values.parse_flag, given, "enabled", receiver.enabled)
    receiver.enabled = bool(enabled)
    if receiver.kind == ReceiverKind.EMAIL:
        gathered.take(_refuse_others, given, "url", "secret")
        if new or "to" in given:
            receiver.to = gathered.take(_addresses, given.get("to")) or []
            receiver.shown = ", ".join(receiver.to)[:300]
        return {}
    gathered.take(_refuse_others, given, "to")
    url = gathered.take(_url, given, needed=new)
    secret = gathered.take(_secret, receiver, given)
    if url:
        receiver.shown = http_post.redact_url(url)[:300]
    receiver.signed = receiver.signed or bool(secret)
    return {name: value for name, value in (("url", url), ("secret", secret)) if value}


def _url(given: Mapping[str, Any], *, needed: bool) -> str:
    url = input_values.parse_text(given, "url", 2000, needed=needed)
    if url and (refused := url_problem(url, query=True)):
        remedy = "Enter a URL such as https://hooks.example.org/...."
        raise Refused(Problem("url", HIDDEN, refused, remedy, "url"))
    return url


def _secret(receiver: Receiver, given: Mapping[str, Any]) -> str:
    secret = input_values.parse_text(given, "secret", 500)
    if secret and receiver.kind == ReceiverKind.SLACK:
        _refuse_others(given, "secret")
    if secret and len(secret) < _LEAST_SECRET:
        remedy = f"Enter at least {_LEAST_SECRET} random characters."
        raise Refused(Problem("secret", HIDDEN, "The secret is too short.", remedy, "secret"))
    return secret


def _refuse_others(given: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if given.get(name):
            text = "Receivers of this kind have no such field."
            remedy = "Leave it out, or choose another kind."
            raise Refused(Problem(name, HIDDEN, text, remedy, "not_of_this_kind"))


def _addresses(value: Any) -> list[str]:
    listed = value.replace("\n", ",").split(",") if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        remedy = 'Send a list, as in ["ops@example.org"].'
        raise Refused(Problem("to", value, "Not a list of addresses.", remedy, "type"))
    found = [one.strip() for one in listed if one.strip()]
    for one in found:
        try:
            validate_email(one)
        except ValidationError:
            remedy = "Example: ops@example.org."
            raise Refused(Problem("to", one, "Invalid e-mail address.", remedy, "email")) from None
    if not 1 <= len(found) <= _MOST_TO:
        remedy = f"Enter 1 to {_MOST_TO} addresses, separated by commas."
        raise Refused(Problem("to", value, "Number of addresses out of range.", remedy, "required"))
    return found


def _keep(receiver: Receiver, secrets: Mapping[str, str]) -> None:
    names = deliveries.vault_names(receiver)
    for name, text in secrets.items():
        store.put(names[name], text)


def _facts(receiver: Receiver) -> dict[str, Any]:
    return {"where": receiver.shown, "to": list(receiver.to), "enabled": receiver.enabled}


def _locked(name: str, expected: int | None) -> Receiver:
    found = selectors.get_or_refuse(Receiver.objects.select_for_update(), "receiver", name=name)
    expect_generation(f"Receiver {name}", found.generation, expected)
    return found
