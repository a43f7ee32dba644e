"""Callers' keys of endpoints: made, hashed, and the console's own kept in a file.

Promises that the clear text of a key is in the database never, and on disk only for the key called
"console", readable by the console's user alone; where several machines share it, it is in the
database instead, sealed. Must not decide who may make one: see actions.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.accounts.models import User
from console.audit.record import record
from console.processkit.files import make_private_dir, write_private
from console.rehearsal import rehearsing
from console.vault import store
from endpoints.keys.terms import KeyTerms
from endpoints.models import Endpoint, InferenceKey, KeyGroup

PREFIX = "ebk_"
CONSOLE = "console"


def new() -> str:
    """A fresh key: 32 random bytes behind a prefix that secret scanners can know."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> str:
    """Keys are long and random, so a plain hash cannot be searched backwards."""
    return hashlib.sha256(key.encode()).hexdigest()


def shown_prefix(key: str) -> str:
    return key[: len(PREFIX) + 6]


def console_key_file(name: str) -> Path:
    """Where the console keeps its own key of the endpoint, where it keeps it in a file."""
    return settings.EMBERLINE.secrets / "endpoints" / f"{name}.key"


def file_to_show(name: str) -> str:
    """Where a person on the console's machine finds it; "" where it is in no file."""
    return "" if _shared() else f"var/secrets/endpoints/{name}.key"


def read_console_key(name: str) -> str:
    """The console's key, "" when there is none."""
    if _shared():
        return store.get(_kept_as(name))
    try:
        return console_key_file(name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def write_console_key(name: str, key: str) -> None:
    if _shared():
        store.put(_kept_as(name), key)
        return
    if rehearsing():
        return
    path = console_key_file(name)
    make_private_dir(path.parent)
    write_private(path, key)


def remove_console_key(name: str) -> None:
    if _shared():
        store.drop(_kept_as(name))
        return
    console_key_file(name).unlink(missing_ok=True)


def _shared() -> bool:
    """Web and workers run on machines of their own: what one keeps in a file no other finds."""
    return bool(settings.EMBERLINE.keys == "database")


def _kept_as(name: str) -> str:
    return f"endpoint/{name}/console-key"


CONSOLE_TERMS = KeyTerms(pin=True)


@dataclass(frozen=True, slots=True)
class NewKey:
    """`clear` is the key itself: to be shown once and then forgotten."""

    key: InferenceKey
    clear: str


def add(user: User | None, of: Endpoint | KeyGroup, label: str, terms: KeyTerms) -> NewKey:
    clear = new()
    whose = {"endpoint": of} if isinstance(of, Endpoint) else {"group": of}
    key = InferenceKey.objects.create(
        name=label,
        sha256=digest(clear),
        prefix=shown_prefix(clear),
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
    made = add(user, endpoint, CONSOLE, CONSOLE_TERMS)
    write_console_key(endpoint.name, made.clear)


def renew_console_key(endpoint: Endpoint) -> None:
    """By the reconciler, when the file with the console's own key is lost."""
    with transaction.atomic():
        lost = endpoint.keys.filter(name=CONSOLE, revoked_at__isnull=True)
        lost.update(revoked_at=timezone.now())
        add_console_key(None, endpoint)
        record(None, "renew_key", f"endpoint/{endpoint.name}", {"name": CONSOLE})
