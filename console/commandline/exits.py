"""Exit codes: stable, one for each thing a script does about it (docs/cli.md)."""

from __future__ import annotations

from console import client

OK = 0
FAILED = 1
USAGE = 2
REFUSED = 3
NOT_FOUND = 4
NOT_ALLOWED = 5
CONFLICT = 6
TIMEOUT = 7
UNREACHABLE = 8

_CODES: tuple[tuple[type[client.EmberlineError], int], ...] = (
    (client.Unreachable, UNREACHABLE),
    (client.TimedOut, TIMEOUT),
    (client.NotFound, NOT_FOUND),
    (client.NotAllowed, NOT_ALLOWED),
    (client.Conflict, CONFLICT),
    (client.Throttled, UNREACHABLE),
    (client.Refused, REFUSED),
)


def of(error: client.EmberlineError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
