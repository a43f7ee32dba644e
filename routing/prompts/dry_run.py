"""Dry run input: a pasted prompt, chat messages or whole request, as a request body. Pure."""

from __future__ import annotations

import json
from typing import Any

from console.core.errors import Problem, Refused

MAX_LENGTH = 400_000
_REMEDY = (
    'Paste a prompt, chat messages such as [{"role": "user", "content": "Hello"}], or the JSON of '
    "a whole request."
)


def read(text: str) -> dict[str, Any]:
    """Parse the text, as JSON if it starts like JSON."""
    if not text.strip():
        raise _rejection("Type a prompt first.")
    if len(text) > MAX_LENGTH:
        raise _rejection(f"This is {len(text)} characters; {MAX_LENGTH} at most.")
    if text.lstrip()[0] not in "[{":
        return check_body({"prompt": text})
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _rejection(f"This begins as JSON and is none: {str(error)[:200]}.") from None
    return check_body({"messages": data} if isinstance(data, list) else data)


def check_body(data: Any) -> dict[str, Any]:
    """Validate a request body as far as the router needs it."""
    if not isinstance(data, dict) or not ({"prompt", "messages", "input"} & set(data)):
        raise _rejection("There is neither a prompt nor messages in it.")
    if "messages" in data and not isinstance(data["messages"], list):
        raise _rejection("The messages are no list.")
    try:
        size = len(json.dumps(data, ensure_ascii=False).encode())
    except (ValueError, TypeError, RecursionError):
        raise _rejection("A text holds half of a surrogate pair.") from None
    if size > 4 * MAX_LENGTH:
        raise _rejection(f"This is {size} bytes; {4 * MAX_LENGTH} at most.")
    return data


def _rejection(message: str) -> Refused:
    return Refused(Problem("prompt", None, message, _REMEDY, "invalid"))
