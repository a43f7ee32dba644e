"""Errors of actions, in the shape used by forms, REST error responses and the CLI."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """An invalid field. `value` is shown to the sender, in logs and pages: without passwords."""

    field: str
    value: Any
    message: str
    remedy: str
    code: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _hide_secrets(self.field, self.value))
        object.__setattr__(self, "message", _LOGIN.sub(r"\1***@", self.message))


_LOGIN = re.compile(r"(://)[^/@\s]+@")
"""User and password in a URL."""
_SECRET_FIELD = re.compile(
    r"(^|[._\[])(password|passwd|token|api_?key|private_key|secret_(access_)?key|kubeconfig|"
    r"credentials?|authorization|(?<!_)secret|client_secret)\]?$",
    re.IGNORECASE,
)


def _hide_secrets(field: str, value: Any) -> Any:
    if isinstance(value, str):
        return "***" if value and _SECRET_FIELD.search(field) else _LOGIN.sub(r"\1***@", value)
    if isinstance(value, Mapping):
        return {key: _hide_secrets(f"{field}.{key}", item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hide_secrets(field, item) for item in value]
    return value


class Refused(Exception):
    """Rejected; nothing was changed. `errors` contain the reason and the fix."""

    def __init__(self, *problems: Problem, status_code: int = 400) -> None:
        super().__init__(" ".join(f"{p.message} {p.remedy}" for p in problems))
        self.errors = problems
        self.status_code = status_code


class Gathered:
    """Collects the errors of independent checks, so that one response names every invalid field."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def take(self, check: Callable[..., T], *given: Any, **more: Any) -> T | None:
        """Return the result of `check`, None if rejected. Only 400s are collected: a missing object
        or right ends the request.
        """
        try:
            return check(*given, **more)
        except Refused as refused:
            if refused.status_code != 400:
                raise
            self._problems += refused.errors
            return None

    def end(self) -> None:
        """Raise `Refused` with all collected errors, if any."""
        if self._problems:
            raise Refused(*self._problems)


def error_document(code: str, detail: str, remedy: str, request_id: str = "") -> dict[str, Any]:
    """Return the body of a REST error response that concerns no field."""
    limit_name = {"code": code, "detail": detail, "field": None, "value": None, "remedy": remedy}
    return {**limit_name, "errors": [], "request_id": request_id}


def expect_object(data: Any) -> dict[str, Any]:
    """Return `data`, or raise `Refused` if it is not an object."""
    if not isinstance(data, dict):
        raise Refused(Problem("", None, "Not a JSON object.", "Send a JSON object.", "type"))
    return data


STALE = "stale"


def expect_generation(what: str, generation: int, expected: int | None) -> None:
    """Raise `Refused` (409) if a change was made for another generation than the current one."""
    if expected is not None and expected != generation:
        message = (
            f"{what} has changed: its generation is {generation}, this change was "
            f"made for {expected}."
        )
        remedy = "Reload it and repeat the change."
        raise Refused(Problem("", None, message, remedy, STALE), status_code=409)
