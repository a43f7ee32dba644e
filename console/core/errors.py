"""Refusals of actions, in the shape that forms, the REST error handler and the CLI read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    field: str
    value: Any
    message: str
    remedy: str
    code: str


class Refused(Exception):
    """Nothing was changed. `errors` says why and what to do instead."""

    def __init__(self, *problems: Problem, status_code: int = 400) -> None:
        super().__init__(" ".join(f"{p.message} {p.remedy}" for p in problems))
        self.errors = problems
        self.status_code = status_code


class Gathered:
    """Collect the refusals of independent checks, so that one answer names every bad field."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def take(self, check: Callable[..., T], *given: Any, **more: Any) -> T | None:
        """Return what `check` returns, None if it refused. Only a 400 is collected: a missing
        object or a missing right ends the request."""
        try:
            return check(*given, **more)
        except Refused as refused:
            if refused.status_code != 400:
                raise
            self._problems += refused.errors
            return None

    def end(self) -> None:
        """Raise `Refused` with everything collected, if there is anything."""
        if self._problems:
            raise Refused(*self._problems)


def expect_object(data: Any) -> dict[str, Any]:
    """What somebody sent, refused where it is a list or a bare value."""
    if not isinstance(data, dict):
        raise Refused(Problem("", None, "This is no object.", "Send a JSON object.", "type"))
    return data


STALE = "stale"


def expect_generation(what: str, generation: int, expected: int | None) -> None:
    """Refused (409) when a change was made for another state than the one that is there now."""
    if expected is not None and expected != generation:
        message = (
            f"{what} was changed meanwhile: it is at generation {generation}, "
            f"and this change was made for {expected}."
        )
        remedy = "Load it again and repeat the change."
        raise Refused(Problem("", None, message, remedy, STALE), status_code=409)
