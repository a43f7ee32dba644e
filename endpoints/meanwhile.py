"""What others did to an endpoint while somebody was writing a change of it.

Reads only. What both began with is the revision of the generation which the page had shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from endpoints.models import Endpoint, Revision
from endpoints.pages.editor.edit_conflict import Difference, differences, merged
from endpoints.spec.endpoint_spec import parse

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """`generation` is the one that this was made of; `revisions` those since, latest first."""

    generation: int
    revisions: tuple[Revision, ...]
    differences: tuple[Difference, ...]

    @property
    def clashes(self) -> int:
        return sum(one.clash for one in self.differences)

    def merged(self, mine: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
        """`sent` holds the choices, as "take.PATH"."""
        chosen = {one.path: str(sent.get(f"take.{one.path}", "")) for one in self.differences}
        return merged(mine, self.differences, chosen)


def moved_on(endpoint: Endpoint, generation: int | None) -> bool:
    return generation is not None and generation != endpoint.generation


def look(endpoint: Endpoint, generation: int | None, mine: Mapping[str, Any]) -> Meanwhile:
    began = endpoint.revisions.filter(number=generation).first() if generation else None
    base = parse(began.spec).flat() if began else None
    since = endpoint.revisions.filter(number__gt=generation or 0).order_by("-number")[:SHOWN]
    found = differences(base, endpoint.parsed.flat(), mine)
    return Meanwhile(endpoint.generation, tuple(since), found)
