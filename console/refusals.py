"""Why an action is refused, in the shape the REST error handler reads. Knows no room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
