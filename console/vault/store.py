"""Secrets shared by the console's processes through the database.

Stored encrypted only, each for its own name. A text that the current keys do not decrypt counts
as absent: it is logged, and its owner creates a new one.
"""

from __future__ import annotations

import logging

from django.utils import timezone

from console.vault import encryption
from console.vault.key_rotation import EncryptedColumns
from console.vault.models import SealedText

log = logging.getLogger(__name__)


def _purpose(name: str) -> str:
    return f"vault/{name}"


SEALED = EncryptedColumns(
    SealedText,
    ("sealed",),
    purpose=lambda row, _column: _purpose(row.name),
    title=lambda row: f"vault/{row.name}",
)


def put(name: str, text: str) -> None:
    fields = {"sealed": encryption.seal(text, _purpose(name)), "changed_at": timezone.now()}
    SealedText.objects.update_or_create(name=name, defaults=fields)


def get(name: str) -> str:
    """Return "" if absent or unreadable."""
    row = SealedText.objects.filter(name=name).first()
    if row is None:
        return ""
    try:
        return encryption.unseal(row.sealed, _purpose(name))
    except encryption.Unreadable as error:
        log.warning("vault: %s: %s", name, error)
        return ""


def drop(name: str) -> None:
    SealedText.objects.filter(name=name).delete()
