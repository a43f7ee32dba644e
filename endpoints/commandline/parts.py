"""Verbs of `emberline endpoint` which other rooms bring: they register, this room knows them not.

A part has `add_to(verbs)`, as the modules beside this one. What a verb returns is printed; one that
must end with a code of its own returns an `Answer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    exit_code: int = 0


class Part(Protocol):
    def add_to(self, verbs: Any) -> None:
        """Add parsers whose defaults hold `run`."""
        ...


_parts: dict[str, Part] = {}


def register(name: str, part: Part) -> None:
    """From now on; a second registration under a name replaces the first."""
    _parts[name] = part


def registered() -> tuple[Part, ...]:
    return tuple(_parts.values())
