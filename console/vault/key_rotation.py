"""Every sealed text of the database, sealed anew with the first key.

Promises that after a run no text needs any but the first key, those apart which it names because no
key opens them; that it may be run at any time and again; and that it is on the trail. Rooms say
themselves which of their columns hold sealed texts: this one must not know what they are for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db import models, transaction

from console.audit.record import record
from console.vault import encryption


@dataclass(frozen=True, slots=True)
class Sealed:
    """Columns with a sealed text each, or (JSON) with several by name. `purpose` is told the
    column, or the name. `title` is the target on the trail; rows may share one."""

    model: type[models.Model]
    columns: tuple[str, ...]
    purpose: Callable[[Any, str], str]
    title: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """Titles of rows that were changed, and of those with a text that no key opens."""

    done: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


_kept: list[Sealed] = []


def register(sealed: Sealed) -> None:
    _kept.append(sealed)


def registered() -> tuple[Sealed, ...]:
    return tuple(_kept)


def rekey() -> Rekeyed:
    """As the console itself, for who is on its machine and so may read the keys anyway."""
    done: dict[str, None] = {}
    unreadable: dict[str, None] = {}
    for sealed in _kept:
        with transaction.atomic():
            fresh: dict[str, None] = {}
            for row in sealed.model._default_manager.select_for_update().order_by("pk"):
                changed, lost = _renew(row, sealed)
                if changed:
                    row.save(update_fields=changed)
                    fresh[sealed.title(row)] = None
                if lost:
                    unreadable[sealed.title(row)] = None
            for title in fresh:
                record(None, "rekey", title)
            done |= fresh
    return Rekeyed(list(done), list(unreadable))


def look() -> Rekeyed:
    """What a run would come to: nothing is written."""
    done: dict[str, None] = {}
    unreadable: dict[str, None] = {}
    for sealed in _kept:
        for row in sealed.model._default_manager.order_by("pk"):
            changed, lost = _renew(row, sealed)
            done |= {sealed.title(row): None} if changed else {}
            unreadable |= {sealed.title(row): None} if lost else {}
    return Rekeyed(list(done), list(unreadable))


def _renew(row: models.Model, sealed: Sealed) -> tuple[list[str], bool]:
    """The columns that changed, in memory, and whether any text of the row could not be opened."""
    changed, lost = [], False
    for column in sealed.columns:
        value = getattr(row, column)
        texts = value if isinstance(value, dict) else {column: value}
        new = {}
        for name, text in texts.items():
            try:
                new[name] = _renewed(text, sealed.purpose(row, name))
            except encryption.Unreadable:
                new[name], lost = text, True
        if new != texts:
            setattr(row, column, new if isinstance(value, dict) else new[column])
            changed.append(column)
    return changed, lost


def _renewed(text: str, purpose: str) -> str:
    if not text or not encryption.outdated(text, purpose):
        return text
    return encryption.seal(encryption.unseal(text, purpose), purpose)
