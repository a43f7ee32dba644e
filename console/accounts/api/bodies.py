"""The bodies of requests about access: objects with known fields of known kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from console.core.errors import Problem, Refused


def body(data: Any, known: Sequence[str]) -> dict[str, Any]:
    """Refuses what is no object, and fields nobody reads."""
    if data in (None, ""):
        data = {}
    if not isinstance(data, Mapping):
        raise Refused(Problem("", data, "This is not an object.", "Send a JSON object.", "type"))
    remedy = f"There are: {', '.join(known)}." if known else "Send no body, or {}."
    problems = [
        Problem(str(name), value, "There is no such field.", remedy, "unknown_field")
        for name, value in data.items()
        if name not in known
    ]
    if problems:
        raise Refused(*problems)
    return dict(data)


def text(data: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A field that must be a text; without a default it must be there."""
    value = data.get(name, default)
    if not isinstance(value, str) or (name not in data and default is None):
        code = "required" if name not in data else "type"
        message = "It is missing." if code == "required" else "This is no text."
        raise Refused(Problem(name, value, message, f"Send {name} as a text.", code))
    return value
