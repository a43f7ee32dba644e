"""Declaration of a kind of row, and the actions on its rows.

The model is the validation: its fields with bounds, labels and help texts, and its `clean`. Forms,
serializers, OpenAPI and lists are derived from it, so that a field or a bound is written once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.validators import (
    MaxValueValidator,
    MinValueValidator,
)
from django.db import models, transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.audit.record import diff, record
from console.core.errors import Problem, Refused

Row = TypeVar("Row", bound=models.Model)

_NUMBERS = (models.IntegerField, models.FloatField, models.DecimalField)
_MISSING = ("required", "null", "blank")
_RANGE = ("invalid", "min_value", "max_value")


def plain_text(value: str) -> None:
    if not value.isprintable():
        text = "Line breaks and control characters are not allowed."
        raise ValidationError(text, "not_printable")


def between(low: float, high: float) -> list[Any]:
    return [MinValueValidator(low), MaxValueValidator(high)]


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

    `slug`: its path in pages and REST, and its audit target without the last letter; `key`: the
    field that names a row. `fields`: those that can be set, in the order of the form; `shown`:
    further ones of the REST document. `all_rows` and `find` may add rows that are not stored.
    `saved(actor, row, before)` and `deleted(actor, row)` run in the transaction of a change;
    `before` is None for a new row. `removal` returns the label of the button that deletes a row and
    the question asked first, None if there is none. `intro`: what the list page says first;
    `more`: template of a section below the form.
    """

    model: type[Row]
    slug: str
    noun: str
    fields: tuple[str, ...]
    shown: tuple[str, ...] = ()
    key: str = "name"
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
        return self.model._meta.app_label

    def target(self, row: Row) -> str:
        return f"{self.slug[:-1]}/{row.pk}"

    def values(self, row: Row) -> dict[str, Any]:
        return {name: getattr(row, name) for name in self.fields}

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
        with transaction.atomic():
            before = self.find(key) if isinstance(key, str) else None
            row = copy.copy(before) if before else self.model(**{self.key: key})
            problems = self._unknown(data)
            for name in self.fields:
                if name in data:
                    problems += self._set(row, name, data[name])
            self._check(row, problems)
            facts = {"changed_at": timezone.now(), "changed_by": stored_actor(actor)}
            for name, value in facts.items():
                setattr(row, name, value)
            row.save()
            self.saved(actor, row, before)
            changes = diff(self.values(before) if before else {}, self.values(row))
            record(actor, "change" if before else "create", self.target(row), changes)
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
            self.model._default_manager.filter(pk=row.pk).delete()
            self.deleted(actor, row)
            record(actor, "delete", self.target(row))
        return self.find(key)

    def _unknown(self, data: Mapping[str, Any]) -> list[Problem]:
        remedy = f"Use one of: {', '.join(self.fields)}."
        return [
            Problem(name, None, "Unknown field.", remedy, "unknown_field")
            for name in data
            if name not in (*self.fields, *self.shown, self.key)
        ]

    def _set(self, row: Row, name: str, value: Any) -> list[Problem]:
        field: Any = self.model._meta.get_field(name)
        try:
            setattr(row, name, _parse(field, value))
        except ValidationError as error:
            return list(self.describe(name, value, [error]))
        return []

    def _check(self, row: Row, problems: list[Problem]) -> None:
        """Raise `Refused` with the problems, and those of the fields that have none yet."""
        invalid = {problem.field for problem in problems}
        settable = {*self.fields, self.key} - invalid
        others = {field.name for field in self.model._meta.fields} - settable
        try:
            row.full_clean(exclude=others)
        except ValidationError as error:
            for name, errors in error.error_dict.items():
                if name not in invalid:
                    field = "" if name == NON_FIELD_ERRORS else name
                    problems += self.describe(field, getattr(row, name, None), errors)
        if problems:
            raise Refused(*problems)

    def describe(
        self, name: str, value: Any, errors: Iterable[ValidationError]
    ) -> Iterable[Problem]:
        """Yield the problems of a field; a message states the bounds, the remedy is the help
        text.
        """
        field: Any = self.model._meta.get_field(name) if name else None
        for error in errors:
            code = str(error.code or "invalid")
            text, remedy = "; ".join(error.messages), str(getattr(field, "help_text", ""))
            if code in _MISSING:
                text = f"{field.verbose_name} is required."
            elif isinstance(field, _NUMBERS) and code in _RANGE:
                text, code = f"{field.verbose_name} {_describe_range(field)}.", "out_of_range"
            yield Problem(name, value, text, remedy or "Correct the value.", code)


def _parse(field: Any, value: Any) -> Any:
    """Convert JSON or typed text to the field's type. Raise ValidationError."""
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "":
        return None if field.null else field.get_default() if field.has_default() else value
    exact = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if isinstance(field, _NUMBERS):
        parsed = field.to_python(value) if exact else None
        # to_python cuts 1.5 down to 1, and takes "nan".
        if parsed is None or parsed != parsed or (not isinstance(value, str) and parsed != value):
            raise ValidationError("Not a number.", "invalid")
        return parsed
    if isinstance(field, models.CharField):
        if not isinstance(value, str):
            raise ValidationError("Not a text.", "invalid")
        return value
    return field.to_python(value)


def _describe_range(field: Any) -> str:
    bounds = {
        type(one): one.limit_value
        for one in field.validators
        if isinstance(one, (MinValueValidator, MaxValueValidator))
    }
    whole = (
        "must be a whole number" if isinstance(field, models.IntegerField) else "must be a number"
    )
    low, high = bounds.get(MinValueValidator), bounds.get(MaxValueValidator)
    return whole if low is None or high is None else f"{whole} from {low:g} to {high:g}"
