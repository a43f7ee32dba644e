"""Secrets which several processes of the console share, where no folder is common to them.

Promises that a text is in the database sealed only, each for its own name, and that one which the
present encryption key does not open counts as absent: it is logged, and its owner makes a new one.
Must not know what the texts are for.
"""

from __future__ import annotations

import logging

from django.utils import timezone

from console.vault import encryption
from console.vault.key_rotation import Sealed
from console.vault.models import SealedText

log = logging.getLogger(__name__)


def _purpose(name: str) -> str:
    return f"vault/{name}"


SEALED = Sealed(
    SealedText,
    ("sealed",),
    purpose=lambda row, _column: _purpose(row.name),
    title=lambda row: f"vault/{row.name}",
)


def put(name: str, text: str) -> None:
    facts = {"sealed": encryption.seal(text, _purpose(name)), "changed_at": timezone.now()}
    SealedText.objects.update_or_create(name=name, defaults=facts)


def get(name: str) -> str:
    """Empty when there is none, or none that can be read."""
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
