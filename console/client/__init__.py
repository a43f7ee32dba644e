"""A small typed client of Emberline's REST API: `Client("https://console", token="emb_...")`.

Promises exceptions with code, field and remedy instead of status numbers; lists that are followed
to their end; creates which are sent again only under one Idempotency-Key. Needs httpx and nothing
of the console: must not know Django.
"""

from __future__ import annotations

from console.client.client import Client
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
from console.client.http import HttpAnswer

__all__ = [
    "ApiError",
    "Client",
    "Conflict",
    "EmberlineError",
    "HttpAnswer",
    "NotAllowed",
    "NotFound",
]
__all__ += ["Problem", "Refused", "ServerFailed", "Stale", "Throttled", "TimedOut", "Unreachable"]
