"""Creation, hashing and storage of inference keys.

Secrets are never stored, except that of the key "console": in a file readable by the console's user
only or, where several machines share it, encrypted in the database; and that of "quickstart", in a
file on the machine of `make up`.
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
from console.rehearsal import is_rehearsing
from console.vault import store
from endpoints.keys.terms import KeyTerms
from endpoints.models import Endpoint, InferenceKey, KeyGroup

PREFIX = "ebk_"
CONSOLE = "console"
QUICKSTART = "quickstart"
"""Key for a caller's first requests to the demo endpoint, so that they are not the console's."""


def generate_key() -> str:
    """Return a new secret: 32 random bytes after a prefix for secret scanners."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """Return the plain SHA-256: secrets are long and random, so no salt is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


def shown_prefix(key: str) -> str:
    return key[: len(PREFIX) + 6]


def console_key_file(name: str) -> Path:
    return settings.EMBERLINE.secrets / "endpoints" / f"{name}.key"


def quickstart_file(name: str) -> Path:
    return settings.EMBERLINE.secrets / QUICKSTART / f"{name}.key"


def file_to_show(name: str) -> str:
    """Return the path of a file with a key for callers, for display; "" without one."""
    return f"var/secrets/{QUICKSTART}/{name}.key" if quickstart_file(name).is_file() else ""


def read_console_key(name: str) -> str:
    """Return the console's key, "" if there is none."""
    if _is_shared():
        return store.get(_storage_name(name))
    try:
        return console_key_file(name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def write_console_key(name: str, key: str) -> None:
    if _is_shared():
        store.put(_storage_name(name), key)
        return
    if is_rehearsing():
        return
    write_key_file(console_key_file(name), key)


def write_key_file(path: Path, key: str) -> None:
    make_private_dir(path.parent)
    write_private(path, key)


def remove_console_key(name: str) -> None:
    if _is_shared():
        store.drop(_storage_name(name))
        return
    console_key_file(name).unlink(missing_ok=True)
    quickstart_file(name).unlink(missing_ok=True)


def _is_shared() -> bool:
    """Return whether web and worker processes run on separate machines, without a shared file
    system.
    """
    return bool(settings.EMBERLINE.keys == "database")


def _storage_name(name: str) -> str:
    return f"endpoint/{name}/console-key"


CONSOLE_TERMS = KeyTerms(pin=True)


@dataclass(frozen=True, slots=True)
class NewKey:
    key: InferenceKey
    clear: str


def add_key(user: User | None, of: Endpoint | KeyGroup, label: str, terms: KeyTerms) -> NewKey:
    clear = generate_key()
    whose = {"endpoint": of} if isinstance(of, Endpoint) else {"group": of}
    key = InferenceKey.objects.create(
        name=label,
        sha256=hash_key(clear),
        prefix=shown_prefix(clear),
        created_by=user,
        **terms_columns(terms),
        **whose,
    )
    return NewKey(key, clear)


def terms_columns(terms: KeyTerms) -> dict[str, object]:
    columns = terms.to_dict()
    return {"pin": columns.pop("pin"), "terms": columns}


def add_console_key(user: User | None, endpoint: Endpoint) -> None:
    """Create the console's key. Call after the endpoint's row is written: its unique name excludes
    races.
    """
    made = add_key(user, endpoint, CONSOLE, CONSOLE_TERMS)
    write_console_key(endpoint.name, made.clear)


def renew_console_key(endpoint: Endpoint) -> None:
    """Replace the console's key after its file was lost. Called by the reconciler."""
    with transaction.atomic():
        lost = endpoint.keys.filter(name=CONSOLE, revoked_at__isnull=True)
        lost.update(revoked_at=timezone.now())
        add_console_key(None, endpoint)
        record(None, "key.renew", f"endpoint/{endpoint.name}", {"name": CONSOLE})
