"""Declaration of a kind of row, and the actions on its rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.audit.record import diff, record
from console.core.errors import Problem, Refused
from console.resources.fields import ModelFields, Row


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """Column of a list page. `cell` returns text, or markup that is safe."""

    label: str
    cell: Callable[[Row], Any]
    numeric: bool = False
    wraps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Row]):
    """A kind of row that people create, change and delete.

    `slug`: its path in pages and REST, and its audit target without the last letter. `shown`:
    fields of the REST document that cannot be set. `all_rows` and `find` may add rows that are not
    stored. `saved(actor, row, before)` and `deleted(actor, row)` run in the transaction of a
    change; `before` is None for a new row. `removal` returns the label of the button that deletes a
    row and the question asked first, None if there is none. `intro`: what the list page says first;
    `more`: template of a section below the form.
    """

    fields: ModelFields[Row]
    slug: str
    noun: str
    shown: tuple[str, ...] = ()
    role: str = "operator"
    columns: Sequence[Column[Row]]
    all_rows: Callable[[], Sequence[Row]]
    find: Callable[[str], Row | None]
    saved: Callable[[Any, Row, Row | None], None] = lambda *_: None
    deleted: Callable[[Any, Row], None] = lambda *_: None
    removal: Callable[[Row], tuple[str, str] | None]
    intro: str = ""
    more: str = ""

    @property
    def title(self) -> str:
        return f"{self.noun[0].upper()}{self.noun[1:]}"

    @property
    def app(self) -> str:
        """Return the name space of the pages' URLs."""
        return self.fields.model._meta.app_label

    def target(self, row: Row) -> str:
        return f"{self.slug[:-1]}/{row.pk}"

    @property
    def key(self) -> str:
        return self.fields.key

    def stored(self, key: Any) -> QuerySet[Row]:
        """Return the stored row, if there is one."""
        return self.fields.model._default_manager.filter(pk=key if isinstance(key, str) else None)

    def get(self, key: str) -> Row:
        """Raise `Refused` (404) if there is no such row."""
        row = self.find(key)
        if row is None:
            raise self.not_found(key)
        return row

    def not_found(self, key: str) -> Refused:
        text, remedy = f"{self.title} {key} does not exist.", "See the list for those that do."
        return Refused(Problem(self.key, key, text, remedy, "not_found"), status_code=404)

    def save(self, actor: Any, key: Any, data: Mapping[str, Any]) -> Row:
        """Create the row or change those of its fields that are in `data`. Raise `Refused` with
        every problem.
        """
        require(actor, self.role)
        if data.get(self.key, key) != key:
            text, remedy = f"The {self.key} cannot be changed.", "Omit it, or add another row."
            raise Refused(Problem(self.key, data[self.key], text, remedy, "fixed"))
        with transaction.atomic():
            list(self.stored(key).select_for_update(no_key=True).values_list("pk"))
            before = self.find(key) if isinstance(key, str) else None
            row = copy.copy(before) if before else self.fields.model(**{self.key: key})
            self.fields.fill(row, data, ignored=(*self.shown, self.key))
            stamp = {"changed_at": timezone.now(), "changed_by": stored_actor(actor)}
            for name, value in stamp.items():
                setattr(row, name, value)
            row.save()
            self.saved(actor, row, before)
            values = self.fields.values
            changes = diff(values(before) if before else {}, values(row))
            record(actor, "update" if before else "create", self.target(row), changes)
        return row

    def remove(self, actor: Any, key: str) -> Row | None:
        """Delete the stored row; return what has its name from now on. Raise `Refused` (404, or 409
        for a row that cannot be deleted).
        """
        require(actor, self.role)
        with transaction.atomic():
            row = self.get(key)
            if row._state.adding:
                text = f"{key} is built in and has no changes to reset."
                remedy = "Change it to override the built-in values."
                raise Refused(Problem(self.key, key, text, remedy, "built_in"), status_code=409)
            if not self.stored(key).delete()[0]:  # concurrently
                raise self.not_found(key)
            self.deleted(actor, row)
            record(actor, "delete", self.target(row))
        return self.find(key)
