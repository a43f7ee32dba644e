"""Why a call did not do what was asked, as exceptions. One class for each thing a caller does
about it; `code` is the console's own stable word."""

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
        """ "replicas: -1 was refused. Replicas cannot be less than 0. Give a whole number ..." """
        place = f"{self.field}: " if self.field else ""
        value = "" if self.value is None else f"{json.dumps(self.value)} was refused. "
        return f"{place}{value}{self.detail} {self.remedy}".rstrip()


class EmberlineError(Exception):
    """Anything this client raises of its own."""


class Unreachable(EmberlineError):
    """Nobody answered, or who answered is no Emberline console."""


class TimedOut(EmberlineError):
    """What was waited for did not come within the time given."""


class ApiError(EmberlineError):
    """The console answered no. The first of `problems` is repeated in code, field and so on."""

    def __init__(self, status: int, problems: tuple[Problem, ...], request_id: str = "") -> None:
        super().__init__("\n".join(str(one) for one in problems))
        self.status = status
        self.problems = problems
        self.request_id = request_id
        first = problems[0]
        self.code, self.detail, self.remedy = first.code, first.detail, first.remedy
        self.field, self.value = first.field, first.value
        self.retry_after = ""  # seconds, as the console asks for them


class Refused(ApiError):
    """What was sent cannot be accepted; nothing was changed."""


class NotAllowed(ApiError):
    """No login, a token that ended, or a role that does not reach."""


class NotFound(ApiError):
    """There is no such thing, or none that this caller may see."""


class Conflict(ApiError):
    """Possible, but not as things are now."""


class Stale(Conflict):
    """It was changed by somebody else meanwhile."""


class Throttled(ApiError):
    """Too many requests, for longer than this client waits."""


class ServerFailed(ApiError):
    """The console, or what it asked, failed."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    412: Stale,
    429: Throttled,
}


def of_answer(status: int, body: Any, request_id: str) -> ApiError:
    """From an error answer; `body` is None where it was no JSON object of ours."""
    kind = _BY_STATUS.get(status, ServerFailed if status >= 500 else Refused)
    if not isinstance(body, Mapping) or "code" not in body:
        text = f"The console answered {status} and did not say why."
        return kind(status, (Problem("unknown", text),), request_id)
    listed = [one for one in body.get("errors") or () if isinstance(one, Mapping)]
    problems = tuple(_problem(one) for one in listed or [body])
    return kind(status, problems, str(body.get("request_id") or request_id))


def _problem(item: Mapping[str, Any]) -> Problem:
    return Problem(
        code=str(item.get("code", "")),
        detail=str(item.get("detail", "")),
        field=str(item.get("field") or ""),
        value=item.get("value"),
        remedy=str(item.get("remedy") or ""),
    )
