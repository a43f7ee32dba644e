"""Rows of callers' keys: made, and the console's own put into its file.

Promises that a row and what the console keeps of its own key belong together. Must not decide who
may make one: see `key_actions`.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from console.accounts.models import User
from console.audit.record import record
from endpoints.keys import storage
from endpoints.keys.terms import KeyTerms
from endpoints.models import Endpoint, InferenceKey, KeyGroup

CONSOLE_TERMS = KeyTerms(pin=True)


@dataclass(frozen=True, slots=True)
class NewKey:
    """`clear` is the key itself: to be shown once and then forgotten."""

    key: InferenceKey
    clear: str


def add(user: User | None, of: Endpoint | KeyGroup, label: str, terms: KeyTerms) -> NewKey:
    clear = storage.new()
    whose = {"endpoint": of} if isinstance(of, Endpoint) else {"group": of}
    key = InferenceKey.objects.create(
        name=label,
        sha256=storage.digest(clear),
        prefix=storage.shown_prefix(clear),
        created_by=user,
        **stored(terms),
        **whose,
    )
    return NewKey(key, clear)


def stored(terms: KeyTerms) -> dict[str, object]:
    """Terms as columns of a row."""
    found = terms.to_dict()
    return {"pin": found.pop("pin"), "terms": found}


def add_console_key(user: User | None, endpoint: Endpoint) -> None:
    """After the endpoint's row is written: of two creators of one name only one gets here."""
    made = add(user, endpoint, storage.CONSOLE, CONSOLE_TERMS)
    storage.write_console_key(endpoint.name, made.clear)


def renew_console_key(endpoint: Endpoint) -> None:
    """By the reconciler, when the file with the console's own key is lost."""
    with transaction.atomic():
        lost = endpoint.keys.filter(name=storage.CONSOLE, revoked_at__isnull=True)
        lost.update(revoked_at=timezone.now())
        add_console_key(None, endpoint)
        record(None, "renew_key", f"endpoint/{endpoint.name}", {"name": storage.CONSOLE})
