"""Re-encrypt every stored secret with the first key.

After a run, no text needs another key, except those reported as unreadable. A run can be repeated
at any time and is audited. Apps register their encrypted columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db import models, transaction

from console.vault import encryption


@dataclass(frozen=True, slots=True)
class EncryptedColumns:
    """Columns with one encrypted text each or (JSON) several by name, or lists of them. `purpose`
    receives the column or the name, and returns None for a value that is not encrypted. `title` is
    the audit target, which rows may share.
    """

    model: type[models.Model]
    columns: tuple[str, ...]
    purpose: Callable[[Any, str], str | None]
    title: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class RotationResult:
    """Titles of changed rows, and of those with unreadable text."""

    done: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


_kept: list[EncryptedColumns] = []


def register(sealed: EncryptedColumns) -> None:
    _kept.append(sealed)


def registered() -> tuple[EncryptedColumns, ...]:
    return tuple(_kept)


def rekey(record: Callable[[None, str, str], object]) -> RotationResult:
    """Re-encrypt as "system": the operating system user who runs this can read the keys.

    `record` writes the audit entry (user, action, target) in the transaction of the change.
    """
    done: dict[str, None] = {}
    unreadable: dict[str, None] = {}
    for sealed in _kept:
        with transaction.atomic():
            fresh: dict[str, None] = {}
            for row in sealed.model._default_manager.select_for_update(no_key=True).order_by("pk"):
                changed, lost = _renew(row, sealed)
                if changed:
                    row.save(update_fields=changed)
                    fresh[sealed.title(row)] = None
                if lost:
                    unreadable[sealed.title(row)] = None
            for title in fresh:
                record(None, "secret.rekey", title)
            done |= fresh
    return RotationResult(list(done), list(unreadable))


def preview() -> RotationResult:
    """Return the result of a run without writing."""
    done: dict[str, None] = {}
    unreadable: dict[str, None] = {}
    for sealed in _kept:
        for row in sealed.model._default_manager.order_by("pk"):
            changed, lost = _renew(row, sealed)
            done |= {sealed.title(row): None} if changed else {}
            unreadable |= {sealed.title(row): None} if lost else {}
    return RotationResult(list(done), list(unreadable))


def _renew(row: models.Model, sealed: EncryptedColumns) -> tuple[list[str], bool]:
    """Re-encrypt in memory; return the changed columns and whether any text was unreadable."""
    changed, lost = [], False
    for column in sealed.columns:
        value = getattr(row, column)
        texts = value if isinstance(value, dict) else {column: value}
        new = {}
        for name, text in texts.items():
            try:
                new[name] = _renew_value(text, sealed.purpose(row, name))
            except encryption.Unreadable:
                new[name], lost = text, True
        if new != texts:
            setattr(row, column, new if isinstance(value, dict) else new[column])
            changed.append(column)
    return changed, lost


def _renew_value(value: Any, purpose: str | None) -> Any:
    if purpose is None:
        return value
    if isinstance(value, list):
        return [_renewed(text, purpose) for text in value]
    return _renewed(value, purpose)


def _renewed(text: str, purpose: str) -> str:
    if not text or not encryption.is_outdated(text, purpose):
        return text
    return encryption.seal(encryption.unseal(text, purpose), purpose)
