"""Fields of a model that people set.

The model is the validation of forms and REST alike: its fields with bounds, labels and help texts,
and its `clean`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Generic, TypeVar

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from console.core.errors import Problem, Refused

Row = TypeVar("Row", bound=models.Model)

_NUMBERS = (models.IntegerField, models.FloatField, models.DecimalField)
_MISSING = ("required", "null", "blank")
_RANGE = ("invalid", "min_value", "max_value")


@dataclass(frozen=True, slots=True)
class ModelFields(Generic[Row]):
    """Settable fields of a model, in the order of its form. `key` names a row, and is checked with
    them.
    """

    model: type[Row]
    names: tuple[str, ...]
    key: str = ""

    def of(self, name: str) -> Any:
        return self.model._meta.get_field(name)

    def help(self, name: str) -> str:
        return str(self.of(name).help_text)

    def values(self, row: Row) -> dict[str, Any]:
        return {name: getattr(row, name) for name in self.names}

    def fill(self, row: Row, data: Mapping[str, Any], ignored: Iterable[str] = ()) -> None:
        """Set the fields in `data`, JSON or typed text, and check the row; its other fields keep
        their values. `ignored` are fields that may be sent but not set. Raise `Refused` with every
        problem: 409 if all that is wrong is a name that is taken.
        """
        remedy = f"Use one of: {', '.join(self.names)}."
        problems = [
            Problem(name, None, "Unknown field.", remedy, "unknown_field")
            for name in data
            if name not in (*self.names, *ignored)
        ]
        values = {**data, self.key: getattr(row, self.key)} if self.key else data
        for name in filter(None, (self.key, *self.names)):
            if name in values:
                try:
                    setattr(row, name, _parse(self.of(name), values[name]))
                except ValidationError as error:
                    problems += self._describe(name, values[name], [error])
        problems += self._check(row, {problem.field for problem in problems})
        if problems:
            taken = all(problem.code == "taken" for problem in problems)
            raise Refused(*problems, status_code=409 if taken else 400)

    def _check(self, row: Row, invalid: set[str]) -> Iterator[Problem]:
        checked = {*self.names, self.key} - invalid
        others = {field.name for field in self.model._meta.fields} - checked
        try:
            row.full_clean(exclude=others, validate_constraints=False)
        except ValidationError as error:
            for name, errors in error.error_dict.items():
                if name not in invalid:
                    field = "" if name == NON_FIELD_ERRORS else name
                    yield from self._describe(field, getattr(row, name, None), errors)

    def _describe(
        self, name: str, value: Any, errors: Iterable[ValidationError]
    ) -> Iterator[Problem]:
        """Yield the problems of a field. The message states bounds; the remedy is the help text."""
        field: Any = self.of(name) if name else None
        for error in errors:
            code, text = str(error.code or "invalid"), "; ".join(error.messages)
            remedy = str(field.help_text) if field else ""
            if code in _MISSING:
                text, code = f"{field.verbose_name} is required.", "required"
            elif code == "unique":
                code = "taken"
            elif code == "invalid_choice":
                text = f"Unknown value: {value}."
                remedy = f"Use one of: {', '.join(str(choice) for choice, _ in field.flatchoices)}."
            elif isinstance(field, _NUMBERS) and code in _RANGE:
                text, code = f"{field.verbose_name} {_describe_range(field)}.", "out_of_range"
            elif isinstance(field, models.BooleanField):
                text = f"{field.verbose_name} must be true or false."
            elif isinstance(field, models.DateField):
                text = f"{field.verbose_name} must be a date such as 2026-11-21."
            yield Problem(name, value, text, remedy or "Correct the value.", code)


def _parse(field: Any, value: Any) -> Any:
    """Convert JSON or typed text to the field's type. Raise ValidationError."""
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "":
        return None if field.null else field.get_default() if field.has_default() else value
    if isinstance(field, _NUMBERS):
        exact = isinstance(value, (int, float, str)) and not isinstance(value, bool)
        parsed = field.to_python(value) if exact else None
        # to_python cuts 1.5 down to 1, and takes "nan".
        if parsed is None or parsed != parsed or (not isinstance(value, str) and parsed != value):
            raise ValidationError("Not a number.", "invalid")
        return parsed
    if isinstance(field, (models.CharField, models.TextField)) and not isinstance(value, str):
        raise ValidationError("Not a text.", "invalid")
    if isinstance(field, models.DateField) and not isinstance(value, (str, date)):
        raise ValidationError("Not a date.", "invalid")
    return field.to_python(value)


def _describe_range(field: Any) -> str:
    limits = {
        type(limit): limit.limit_value
        for limit in field.validators
        if isinstance(limit, (MinValueValidator, MaxValueValidator))
    }
    number = "a whole number" if isinstance(field, models.IntegerField) else "a number"
    low, high = limits.get(MinValueValidator), limits.get(MaxValueValidator)
    span = "" if low is None or high is None else f" from {low:,} to {high:,}"
    return f"must be {number}{span}"
