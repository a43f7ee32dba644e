"""Declaration of a spec field: type, bounds, texts, and effect of a change.

A section of a spec is a dataclass whose attributes are made by `declare`. Any JSON value is either
converted to the field's type or rejected with a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, get_origin, get_type_hints

from endpoints.spec.validators import (
    CONTROL,
    Problem,
    key_values,
    key_values_problem,
    object_name_problem,
    objects_problem,
)

Plain = dict[str, Any]
"""A JSON object in an external format."""
DAY_S = 86_400
NAMED: dict[str, Any] = {"rule": object_name_problem}
PAIRS: dict[str, Any] = {
    "rule": key_values_problem,
    "from_text": key_values,
    "remedy": "Write KEY=VALUE pairs such as team=search, or give an object, {} for none.",
}
SECONDS: dict[str, Any] = {"minimum": 0, "maximum": DAY_S}
_REMEDIES: dict[type, str] = {
    str: "Give a text, or leave the field empty.",
    int: "Give a whole number.",
    bool: "Give true or false.",
    tuple: "Give a list of texts.",
    dict: "Give an object, {} for none.",
    list: "Give a list of objects, [] for none.",
}

_MAX_DISPLAYED = 1e300
"""Bound of displayed numbers: an integer beyond a float's range cannot be formatted."""
_MAX_JSON_CHARS = 262_144
"""Limit of a JSON value (characters), as for Kubernetes objects."""


class Effect(StrEnum):
    FIXED = "fixed"
    RESTART = "restart"
    LIVE = "live"

    @property
    def label(self) -> str:
        return _EFFECT_LABELS[self]


_EFFECT_LABELS = {
    Effect.FIXED: "cannot be changed",
    Effect.RESTART: "restarts workers",
    Effect.LIVE: "applies live",
}


@dataclass(frozen=True, slots=True)
class SpecField:
    """Field of an endpoint's spec. `kind`: str, int, float, bool, tuple (of str), dict (JSON
    object) or list (JSON values). `default` None: required. `from_text` parses a value sent as one
    text, and returns the text if it cannot.
    """

    path: str
    kind: type
    default: Any
    label: str
    help: str
    remedy: str
    effect: Effect
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    rule: Callable[[Any], Problem | None] | None = None
    from_text: Callable[[str], Any] | None = None

    def accept(self, value: Any) -> tuple[Any, Problem | None]:
        if self.from_text is not None and isinstance(value, str):
            value = self.from_text(value)
        typed, fits = _to_kind(self.kind, value)
        if not fits:
            return None, (
                f"{self.label} must be "
                f"{_KIND_NAMES[self.kind]}{_describe_value(self.kind, value)}.",
                self.remedy,
                "type",
            )
        if self.choices and typed not in self.choices:
            return None, self._not_a_choice(typed)
        bounds = self._out_of_bounds(typed)
        if bounds:
            return None, (bounds, self.remedy, "out_of_range")
        return typed, self.rule(typed) if self.rule else None

    def _not_a_choice(self, value: Any) -> Problem:
        remedy = f"Choose one of: {', '.join(self.choices)}."
        return f"{value!r} is not a value of {self.label}.", remedy, "invalid_choice"

    def _out_of_bounds(self, value: Any) -> str:
        if self.kind not in (int, float):
            return ""
        displayed = (
            f"{value:g}" if abs(value) < _MAX_DISPLAYED else "a number with more than 300 digits"
        )
        if self.minimum is not None and value < self.minimum:
            return f"{self.label} cannot be less than {self.minimum:g}: {displayed} was given."
        if self.above is not None and value <= self.above:
            return f"{self.label} must be more than {self.above:g}: {displayed} was given."
        if self.maximum is not None and value > self.maximum:
            return f"{self.label} cannot be more than {self.maximum:g}: {displayed} was given."
        return ""


def _describe_value(kind: type, value: Any) -> str:
    """Describe the given value; omitted for texts and containers, which may hold a secret."""
    if kind not in (int, float, bool):
        return ""
    text = repr(value)
    return f", not {text}" if len(text) <= 60 else f", not {text[:60]}…"


_KIND_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of texts",
    dict: "an object",
    list: "a list",
}


def _to_kind(kind: type, value: Any) -> tuple[Any, bool]:
    if kind is bool:
        return value, isinstance(value, bool)
    if isinstance(value, bool):
        return None, False
    if kind is int:
        return value, isinstance(value, int)
    if kind is float:
        finite = isinstance(value, int | float) and abs(value) < 1e15
        return (float(value) if finite else None), finite
    if kind in (dict, list):
        return _copy_plain(kind, value)
    if kind is tuple:
        fits = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return (tuple(value) if fits else None), fits
    return value, isinstance(value, str) and not CONTROL.search(value)


def _copy_plain(kind: type, value: Any) -> tuple[Any, bool]:
    """Return a deep copy, so that the source cannot change the spec."""
    if not isinstance(value, kind):
        return None, False
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None, False
    return (json.loads(text), True) if len(text) <= _MAX_JSON_CHARS else (None, False)


def declare(
    default: Any, label: str, text: str, effect: Effect = Effect.RESTART, **more: Any
) -> Any:
    """Return a dataclass field that `declared_fields` reads. `default` None: required. `more`:
    further attributes of its SpecField; a missing remedy follows from the type and bounds.
    """
    metadata = {"default": default, "label": label, "help": text, "effect": effect, **more}
    if default is None:
        return field(metadata=metadata)
    if isinstance(default, dict | list):
        return field(default_factory=type(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def declared_fields(section: Any, prefix: str = "") -> Iterator[SpecField]:
    """Yield the declared fields of a dataclass and of the sections in it, in order."""
    kinds = get_type_hints(section)
    for declared in fields(section):
        path, kind = f"{prefix}{declared.name}", kinds[declared.name]
        if is_dataclass(kind):
            yield from declared_fields(kind, f"{path}.")
        else:
            yield _spec_field(path, get_origin(kind) or kind, declared.metadata)


def section_paths(path: str) -> list[str]:
    """Return the sections of a field, outermost first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _spec_field(path: str, kind: type, facts: Mapping[str, Any]) -> SpecField:
    remedy = _REMEDIES.get(kind, "")
    if kind in (int, float) and "remedy" not in facts:
        number = "whole number" if kind is int else "number"
        remedy = f"Give a {number} from {facts['minimum']:g} to {facts['maximum']:g}."
    if "choices" in facts:
        remedy = "Choose one of: " + ", ".join(filter(None, facts["choices"])) + "."
    rule = {"rule": objects_problem} if kind is list else {}
    return SpecField(path, kind, **{"remedy": remedy, **rule, **facts})
