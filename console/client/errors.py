"""Exceptions of the client, one class per reaction of the caller.

`code` is the console's stable error code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    code: str
    detail: str
    field: str = ""
    value: Any = None
    remedy: str = ""

    def __str__(self) -> str:
        """Format like "replicas: -1 was refused. Replicas cannot be less than 0. Give a whole
        number ..."
        """
        place = f"{self.field}: " if self.field else ""
        value = "" if self.value is None else f"{json.dumps(self.value)} was rejected. "
        return f"{place}{value}{self.detail} {self.remedy}".rstrip()


class EmberlineError(Exception): ...


class Unreachable(EmberlineError):
    """No response, or a response that is not from an Emberline console."""


class TimedOut(EmberlineError):
    """The awaited state was not reached in time."""


class ApiError(EmberlineError):
    """Error response. The first of `problems` is also available as `code`, `field` and so on."""

    def __init__(self, status: int, problems: tuple[Problem, ...], request_id: str = "") -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.status = status
        self.problems = problems
        self.request_id = request_id
        first = problems[0]
        self.code, self.detail, self.remedy = first.code, first.detail, first.remedy
        self.field, self.value = first.field, first.value
        self.retry_after = ""  # seconds, from the response


class Refused(ApiError):
    """Invalid request; nothing was changed."""


class NotAllowed(ApiError):
    """No login, an expired token, or insufficient rights."""


class NotFound(ApiError):
    """Not found, or not visible to this caller."""


class Conflict(ApiError):
    """Valid, but not in the current state."""


class Stale(Conflict):
    """Changed concurrently by someone else."""


class Throttled(ApiError):
    """Rate limit exceeded for longer than the client waits."""


class ServerFailed(ApiError):
    """Failure of the console or of a service it queried."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    412: Stale,
    429: Throttled,
}


def error_from_response(status: int, body: Any, request_id: str) -> ApiError:
    """Return the exception for a response; `body` is None if it is not a JSON object."""
    kind = _BY_STATUS.get(status, ServerFailed if status >= 500 else Refused)
    if not isinstance(body, Mapping) or "code" not in body:
        text = f"The console answered {status} without a message."
        return kind(status, (Problem("unknown", text),), request_id)
    listed = [error for error in body.get("errors") or () if isinstance(error, Mapping)]
    problems = tuple(_parse_problem(problem) for problem in listed or [body])
    return kind(status, problems, str(body.get("request_id") or request_id))


def _parse_problem(item: Mapping[str, Any]) -> Problem:
    return Problem(
        code=str(item.get("code", "")),
        detail=str(item.get("detail", "")),
        field=str(item.get("field") or ""),
        value=item.get("value"),
        remedy=str(item.get("remedy") or ""),
    )
