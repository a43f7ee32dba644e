"""Links to an endpoint's form with a proposed change filled in, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from endpoints.pages.editor.edit_conflict import is_same
from endpoints.pages.editor.form_fields import format_value, parse_value, to_form_data
from endpoints.spec.field import Effect, SpecField
from endpoints.spec.fields import BY_PATH

_OFF = "off"
_FALSE = (_OFF, "false", "0")
_TRUE = ("on", "true", "1")
_OTHERS = ("note", "start", "drawn")  # parameters of the page
_MAX_CHARACTERS = 2000
_MAX_NAME = 60  # characters of an unknown parameter that are shown


@dataclass(frozen=True, slots=True)
class FilledField:
    """A field that the link changed. `before`, `after`: as in its input."""

    path: str
    label: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Prefill:
    """Values that a URL fills into the form. `values` by path; `ignored`: the reason by the
    parameter that is not filled in.
    """

    values: dict[str, Any]
    ignored: dict[str, str]


def prefilled_edit_url(name: str, changes: Mapping[str, Any], note: str = "") -> str:
    """Return the address of the endpoint's form with these values, by path, and the note of the
    revision filled in. Nothing is saved before the user saves.
    """
    off = {path: _OFF for path, value in changes.items() if value is False}
    query = urlencode({**off, **to_form_data(changes), **({"note": note} if note else {})})
    address = reverse("endpoints:edit", args=[name])
    return f"{address}?{query}" if query else address


def read_prefill(query: Mapping[str, str]) -> Prefill:
    """Return the values of a link and its parameters that are not values of a changeable field."""
    flat_values: dict[str, Any] = {}
    ignored: dict[str, str] = {}
    for path, typed in query.items():
        if path in _OTHERS:
            continue
        spec_field = BY_PATH.get(path)
        if spec_field is None:
            ignored[_shorten(path)] = "Unknown field."
        elif spec_field.effect is Effect.FIXED:
            ignored[spec_field.label] = "Cannot be changed."
        elif len(typed) > _MAX_CHARACTERS:
            ignored[spec_field.label] = f"Longer than {_MAX_CHARACTERS:,} characters."
        else:
            value = _read_value(spec_field, typed)
            _accepted, problem = spec_field.accept(value)
            if problem is None:
                flat_values[path] = value
            else:
                ignored[spec_field.label] = f"{problem[0]} {problem[1]}"
    return Prefill(flat_values, ignored)


def _read_value(spec_field: SpecField, typed: str) -> Any:
    if spec_field.kind is not bool:
        return parse_value(spec_field, typed)
    return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}.get(typed, typed)


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"


def list_filled(before: Mapping[str, Any], filled: Mapping[str, Any]) -> list[FilledField]:
    """Return the fields that differ from the endpoint's values."""
    return [
        FilledField(path, BY_PATH[path].label, _show(path, before[path]), _show(path, value))
        for path, value in filled.items()
        if path in before and not is_same(path, before[path], value)
    ]


def _show(path: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(format_value(BY_PATH[path], value)) or "empty"
