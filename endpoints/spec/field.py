"""Declaration of a spec field: type, bounds, texts, and effect of a change.

Any JSON value is either converted to the field's type or rejected with a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from endpoints.spec.validators import CONTROL, Problem

_MAX_DISPLAYED = 1e300
"""Bound of displayed numbers: an integer beyond a float's range cannot be formatted."""
_MAX_JSON_CHARS = 262_144
"""Limit of a JSON value (characters), as for Kubernetes objects."""


class Effect(StrEnum):
    FIXED = "fixed"
    RESTART = "restart"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class SpecField:
    """`kind`: str, int, float, bool, tuple (of str), dict (JSON object) or list (JSON values).
    `default` None: required. `from_text` parses a value sent as one text, and returns the text if
    it cannot.
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
        return f"{value!r} is not a known {self.label.lower()}.", remedy, "invalid_choice"

    def _out_of_bounds(self, value: Any) -> str:
        if self.kind not in (int, float):
            return ""
        given = f"{value:g}" if abs(value) < _MAX_DISPLAYED else "a number of very many digits"
        if self.minimum is not None and value < self.minimum:
            return f"{self.label} cannot be less than {self.minimum:g}: {given} was given."
        if self.above is not None and value <= self.above:
            return f"{self.label} must be more than {self.above:g}: {given} was given."
        if self.maximum is not None and value > self.maximum:
            return f"{self.label} cannot be more than {self.maximum:g}: {given} was given."
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
