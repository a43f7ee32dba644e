"""What changed between two specs, and what each change does to a running endpoint.

Must not know Django. Paths and effects come from `spec_fields`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.fields import FIELDS, Effect


@dataclass(frozen=True, slots=True)
class Change:
    path: str
    label: str
    before: Any
    after: Any
    effect: Effect


def diff(before: EndpointSpec, after: EndpointSpec) -> tuple[Change, ...]:
    """Changed fields in the order of the form."""
    old, new = before.flat(), after.flat()
    return tuple(
        Change(f.path, f.label, old[f.path], new[f.path], f.effect)
        for f in FIELDS
        if old[f.path] != new[f.path]
    )


def as_audit(changes: tuple[Change, ...]) -> dict[str, list[Any]]:
    """The trail's shape: {"replicas": [1, 2]}."""
    return {change.path: [change.before, change.after] for change in changes}
