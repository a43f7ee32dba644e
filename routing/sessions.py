"""A session's name, said where an endpoint looks for it."""

from __future__ import annotations

from typing import Any

from console.core.errors import Problem, Refused
from endpoints.models import Endpoint


def named(endpoint: Endpoint, session: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers and fields of the body; raises `Refused` for what no header can carry."""
    if not session:
        return {}, {}
    if not session.isprintable() or not session.isascii() or len(session) > 200:
        text = "This cannot be sent in a header."
        remedy = "Give up to 200 plain characters."
        raise Refused(Problem("session", session, text, remedy, "invalid"))
    source, _, name = endpoint.parsed.routing.session_key.partition(":")
    if source == "header":
        return {name: session}, {}
    if source == "cookie":
        return {"cookie": f"{name}={session}"}, {}
    first, *rest = reversed(name.split("."))
    nested: Any = {first: session}
    for part in rest:
        nested = {part: nested}
    return {}, nested
