"""Request bodies, validated by the serializer that describes them in the OpenAPI document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.settings import api_settings

from console.core.errors import Problem, Refused, expect_object

NON_FIELD_ERRORS_KEY = api_settings.NON_FIELD_ERRORS_KEY
_SHOWN_LENGTH = 80
_MISSING = ("blank", "empty", "null", "required")


def read_body(
    serializer: type[serializers.Serializer[Any]],
    data: Any,
    *,
    partial: bool = False,
    context: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the validated values; no body is an empty one.

    `partial`: required fields may be missing; `context`: for the serializer. Raise `Refused` with
    every problem: its message is the serializer's, its remedy states choices and bounds, or is the
    field's `remedy` or help text.
    """
    body = {} if data in (None, "") else expect_object(data)
    checked = serializer(data=body, partial=partial, context=context or {})
    fields = {name: field for name, field in checked.fields.items() if not field.read_only}
    remedy = f"Known fields: {', '.join(fields)}." if fields else "Send no body, or {}."
    # The value of an unknown field may be a secret, as of a mistyped name.
    problems = [
        Problem(str(name)[:_SHOWN_LENGTH], None, "Unknown field.", remedy, "unknown_field")
        for name in checked.initial_data
        if name not in fields
    ]
    if not checked.is_valid():
        for name, errors in checked.errors.items():
            field = fields.get(str(name))
            value = checked.initial_data.get(name)
            problems += _describe(str(name) if field else "", field, value, errors)
        raise Refused(*problems)
    values = dict(checked.validated_data)
    for name, field in fields.items():
        # FloatField takes "nan" and true.
        value, value_sent = values.get(field.source), checked.initial_data.get(name)
        if isinstance(value, float) and (isinstance(value_sent, bool) or not math.isfinite(value)):
            error = ErrorDetail("A valid number is required.", "invalid")
            problems += _describe(name, field, value_sent, [error])
    if problems:
        raise Refused(*problems)
    return values


def _describe(path: str, field: Any, value: Any, errors: Any) -> Iterator[Problem]:
    """Yield the problems of a field; those of an item of a list or object with its place."""
    if isinstance(errors, Mapping):
        for place, inner in errors.items():
            if place == NON_FIELD_ERRORS_KEY:
                yield from _describe(path, field, None, inner)
            elif isinstance(value, list):
                part = value[int(place)]
                yield from _describe(f"{path}[{place}]", _part_of(field, place), part, inner)
            else:
                part = value.get(place) if isinstance(value, Mapping) else None
                yield from _describe(f"{path}.{place}", _part_of(field, place), part, inner)
        return
    shown = None if field is None or field.write_only else _shorten(value)
    for error in errors:
        text, code, remedy = str(error), error.code, _remedy(field)
        if code in _MISSING:
            text, code = "This field is required.", "required"
            is_hint = remedy == str(getattr(field, "help_text", None) or "")
            remedy = "Enter a value." if is_hint else remedy
        elif isinstance(field, serializers.RegexField) and code == "invalid":
            text = "Invalid value."
        yield Problem(path, shown, text, remedy or "Correct the value.", code)


def _shorten(value: Any) -> Any:
    """Return the value as errors show it: the beginning of a text, no long list or object."""
    if isinstance(value, str):
        return value[:_SHOWN_LENGTH]
    return None if len(repr(value)) > _SHOWN_LENGTH else value


def _part_of(field: Any, place: Any) -> Any:
    child = getattr(field, "child", None)
    return child if child is not None else getattr(field, "fields", {}).get(place)


def _remedy(field: Any) -> str:
    own = getattr(field, "remedy", "")
    if own:
        return str(own)
    choices = getattr(field, "choices", None)
    if choices:
        return f"Use one of: {', '.join(map(str, choices))}."
    low, high = getattr(field, "min_value", None), getattr(field, "max_value", None)
    if low is not None and high is not None:
        number = "a whole number" if isinstance(field, serializers.IntegerField) else "a number"
        return f"Use {number} from {low:,} to {high:,}."
    return str(getattr(field, "help_text", None) or "")
