"""Typed client of the REST API: `Client("https://console", token="emb_...")`.

Errors are exceptions with code, field and remedy. Lists are paginated transparently. Creates are
retried only under one Idempotency-Key. Depends on httpx and on no other part of the console.
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
