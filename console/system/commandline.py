"""`emberline doctor`: whether this console has what it needs to run."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from console.system import preflight


def add_to(rooms: Any) -> None:
    text = "whether the console has what it needs; exit 1 where it has not"
    rooms.add_parser("doctor", help=text).set_defaults(run=doctor)


def doctor(_options: dict[str, Any]) -> str:
    found = preflight.ask()
    text = "\n".join(str(verdict) for verdict in found)
    if any(verdict.needed and not verdict.ok for verdict in found):
        raise CommandError(text)
    return text
