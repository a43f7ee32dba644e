"""Label matchers in Alertmanager's syntax: `severity="page"`.

Semantics are Alertmanager's: a missing label is "", a pattern matches the whole value. Patterns are
limited against excessive backtracking: letters, alternatives, groups, `.`, `[...]` and a few
repeats, none of a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

MOST, LONGEST = 20, 300
_LINE = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_REPEATS = 4
_PLAIN_PATTERN = re.compile(
    r"(?:[\w :/@%,=<>~!#&;-]|\\[.\\|()\[\]+*?{}^$/-]|\.[*+?]?|\[\^?[\w.: -]+\][*+?]?|[|()])*",
    re.ASCII,
)
EXAMPLE: Final = 'Examples: severity="page", endpoint=~"chat-.*".'


@dataclass(frozen=True, slots=True)
class Matcher:
    name: str
    op: str
    value: str

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{self.op}"{escaped}"'

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.name, "")
        if self.op in ("=", "!="):
            return (value == self.value) is (self.op == "=")
        matches = _pattern(self.value).fullmatch(value) is not None
        return matches is (self.op == "=~")

    def data(self) -> dict[str, str]:
        return {"name": self.name, "op": self.op, "value": self.value}


Matchers = tuple[Matcher, ...]


def matches(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    """Return whether all matchers match; no matchers match everything."""
    return all(matcher.matches(labels) for matcher in matchers)


def from_data(data: Iterable[Mapping[str, Any]]) -> Matchers:
    """Return the matchers stored in a row."""
    return tuple(Matcher(item["name"], item["op"], item["value"]) for item in data)


def parse(given: Any) -> Matchers:
    """Parse a matcher, a text with one a line, or a list. Raise ValueError."""
    lines = given.splitlines() if isinstance(given, str) else given
    if not isinstance(lines, Sequence) or not all(isinstance(line, str) for line in lines):
        raise ValueError("Not a list of matchers.")
    matchers = tuple(_one(line) for line in lines if line.strip())
    if len(matchers) > MOST:
        raise ValueError(f"At most {MOST} matchers are allowed.")
    return matchers


def pinned_value(matchers: Iterable[Matcher], name: str) -> str:
    """Return the only value the matchers allow for that label, empty if several are possible."""
    return next(
        (matcher.value for matcher in matchers if matcher.name == name and matcher.op == "="), ""
    )


def _one(line: str) -> Matcher:
    match = _LINE.fullmatch(line)
    if match is None or len(line) > LONGEST:
        raise ValueError(f"Invalid matcher: {line[:LONGEST]}.")
    name, op, value = match.groups()
    if value.startswith('"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None:
            raise ValueError(f"Unbalanced quotes in the matcher: {line}.")
        value = _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], quoted[1])
    if not value.isprintable():
        raise ValueError("Invalid characters in the matcher.")
    if op.endswith("~"):
        _check_pattern(line, value)
    return Matcher(name, op, value)


def _check_pattern(line: str, value: str) -> None:
    repeats = value.count("*") + value.count("+")
    try:
        good = _PLAIN_PATTERN.fullmatch(value) is not None and repeats <= _REPEATS
        re.compile(value)
    except re.error:
        good = False
    if not good:
        text = (
            f"Unsupported pattern: {line}. Use letters, |, ( ), . and [ ] with at most "
            f"{_REPEATS} repeats (* or +), none of a group."
        )
        raise ValueError(text)


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)
