"""Client of the REST API: `Client("https://console", token="emb_...").get("endpoints", "chat")`.

Errors are exceptions with code, field and remedy. Depends on httpx and on no other part of the
console.
"""

from __future__ import annotations

from console.client.client import Client, HttpAnswer
from console.client.errors import (
    ApiError,
    Conflict,
    EmberlineError,
    NotAllowed,
    NotFound,
    Problem,
    Refused,
    ServerFailed,
    Stale,
    Throttled,
    TimedOut,
    Unreachable,
)
from console.client.watch import Watch

__all__ = ["ApiError", "Client", "Conflict", "EmberlineError", "HttpAnswer", "NotAllowed"]
__all__ += ["NotFound", "Problem", "Refused", "ServerFailed", "Stale", "Throttled", "TimedOut"]
__all__ += ["Unreachable", "Watch"]
