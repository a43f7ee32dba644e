"""Three-way merge of concurrent edits of an endpoint.

Fields changed differently by both sides are resolved by the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from endpoints.models import Endpoint, Revision
from endpoints.pages.editor.form_fields import format_value
from endpoints.spec.endpoint_spec import parse
from endpoints.spec.fields import BY_PATH, FIELDS

THEIRS, MINE = "theirs", "mine"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field changed by others since; `clash`: also changed here, to another value."""

    path: str
    label: str
    before: Any
    theirs: Any
    mine: Any
    clash: bool


def differences(
    base: Mapping[str, Any] | None, theirs: Mapping[str, Any], mine: Mapping[str, Any]
) -> tuple[Difference, ...]:
    """Return the differences by whole path, in form order. Without a known base (`base` None) every
    difference is a clash.
    """
    rows = []
    for field in FIELDS:
        path = field.path
        before, other, own = (side.get(path) for side in (base or {}, theirs, mine))
        if is_same(path, other, own) or (base is not None and is_same(path, before, other)):
            continue
        clash = base is None or not is_same(path, before, own)
        rows.append(Difference(path, field.label, before, other, own, clash))
    return tuple(rows)


def merged(
    mine: Mapping[str, Any], found: tuple[Difference, ...], chosen: Mapping[str, str]
) -> dict[str, Any]:
    taken = {
        difference.path: difference.theirs
        for difference in found
        if not difference.clash or chosen.get(difference.path, MINE) == THEIRS
    }
    return {**mine, **taken}


def is_same(path: str, one: Any, other: Any) -> bool:
    """Compare values as typed: 4 equals 4.0."""
    field = BY_PATH[path]
    return bool(_plain(format_value(field, one)) == _plain(format_value(field, other)))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


SHOWN = 5


@dataclass(frozen=True, slots=True)
class EditConflict:
    """Concurrent change of an edited endpoint. `generation`: the one edited here; `revisions`:
    those since, latest first.
    """

    generation: int
    revisions: tuple[Revision, ...]
    differences: tuple[Difference, ...]

    def merged(self, mine: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
        """`sent` holds the choices as "take.PATH"."""
        chosen = {
            difference.path: str(sent.get(f"take.{difference.path}", ""))
            for difference in self.differences
        }
        return merged(mine, self.differences, chosen)


def moved_on(endpoint: Endpoint, generation: int | None) -> bool:
    return generation is not None and generation != endpoint.generation


def find_conflict(
    endpoint: Endpoint, generation: int | None, mine: Mapping[str, Any]
) -> EditConflict:
    began = endpoint.revisions.filter(number=generation).first() if generation else None
    base = parse(began.spec).flat() if began else None
    since = endpoint.revisions.filter(number__gt=generation or 0).order_by("-number")[:SHOWN]
    changed = differences(base, endpoint.parsed.flat(), mine)
    return EditConflict(endpoint.generation, tuple(since), changed)
