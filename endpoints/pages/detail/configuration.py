"""Configuration tab: grouped values, manifest text and worker command. Specs contain no secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.field import SpecField
from endpoints.spec.fields import FIELDS

_GROUPS = (
    ("Model", ("", "resources")),
    ("Cache", ("cache",)),
    ("Routing", ("routing", "router", "limits", "exposure")),
    ("Scaling and rollout", ("scaling", "rollout")),
    ("Model source", ("source",)),
    ("Placement and pods", ("placement", "pod", "pd")),
    ("Metrics and tags", ("monitoring", "tags")),
)
_ALWAYS_SHOWN = 3
HIDDEN_FIELDS = frozenset({"manifest"})
"""Stored for export only; shown in the text, not in the values."""


@dataclass(frozen=True, slots=True)
class Value:
    label: str
    path: str
    text: str
    chosen: bool
    effect: str


@dataclass(frozen=True, slots=True)
class ValueGroup:
    title: str
    values: tuple[Value, ...]

    @property
    def chosen(self) -> int:
        return sum(value.chosen for value in self.values)


def form_values(spec: EndpointSpec) -> tuple[ValueGroup, ...]:
    every = value_groups(spec)
    return tuple(
        group for index, group in enumerate(every) if index < _ALWAYS_SHOWN or group.chosen
    )


def value_groups(spec: EndpointSpec) -> tuple[ValueGroup, ...]:
    flat = spec.flat()
    return tuple(
        ValueGroup(title, tuple(_value(f, flat[f.path]) for f in FIELDS if _section(f) in sections))
        for title, sections in _GROUPS
    )


def format_value(value: Any) -> str:
    if value is None or value in ("", (), [], {}):
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {format_value(item)}" for key, item in value.items())
    return str(value)


def _section(field: SpecField) -> str:
    if field.path == "tags":
        return "tags"
    head, dot, _ = field.path.partition(".")
    return head if dot or head in HIDDEN_FIELDS else ""


def _value(field: SpecField, value: Any) -> Value:
    chosen = format_value(value) != format_value(field.default)
    return Value(field.label, field.path, format_value(value), chosen, field.effect.label)
