"""Split the condition of a rule into measure and thresholds, and find selectors without a metric.

Works on tokens without parsing PromQL; Prometheus validates the syntax. If the condition is not a
comparison of one value, the whole condition is the measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN = re.compile(
    r"""#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`"""
    r"|[()\[\]{}]|[=!<>]=|[<>]|[A-Za-z_:][\w:]*|.",
    re.DOTALL,
)
_SIGNS: Final = frozenset(("==", "!=", ">=", "<=", ">", "<"))
_NARROWING: Final = frozenset(("and", "unless"))
_MATCHING = re.compile(r"\s*(?:on|ignoring|group_left|group_right)\b\s*(?:\([^)]*\))?", re.I)


# Keywords that may precede a selector.
_WORDS: Final = frozenset(
    ("and", "or", "unless", "bool", "on", "ignoring", "group_left", "group_right", "by", "without")
)
_QUOTES: Final = ('"', "'", "`")
_PREFIX = re.compile(r"\^?(?:\((?:\?:)?)*[A-Za-z_:][A-Za-z0-9_:]{2}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`thresholds`: operands compared with `value`, empty if unknown. `falls`: low values are
    bad."""

    value: str
    thresholds: tuple[str, ...] = ()
    falls: bool = False


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int


def parse_comparison(condition: str) -> Comparison:
    """Split the condition; `and` and `unless` clauses are dropped, since they measure nothing."""
    text = _bare(condition)
    tokens = list(_outside(text))
    words = [one.text.lower() for one in tokens]
    if "or" in words:
        return Comparison(text)
    narrowing = next((one for one in tokens if one.text.lower() in _NARROWING), None)
    if narrowing is not None:
        return parse_comparison(text[: narrowing.start])
    signs = [one for one in tokens if one.text in _SIGNS]
    if not signs or "bool" in words:
        return Comparison(text)
    starts, ends = [0, *(one.end for one in signs)], [*(one.start for one in signs), len(text)]
    value, *others = (_unmatched(text[begin:end]) for begin, end in zip(starts, ends, strict=True))
    falls = signs[0].text in ("<", "<=")
    if len(others) == 1 and parse_number(value) is not None:
        return Comparison(others[0], (value,), signs[0].text in (">", ">="))
    return Comparison(value, tuple(others), falls)


def find_unselective(condition: str) -> str:
    """Return the first selector without a metric name, such as `{__name__=~".+"}`, or "".

    A regular expression names metrics if each alternative begins with 3 literal characters.
    """
    found = [one for one in _TOKEN.findall(condition) if one.strip() and not one.startswith("#")]
    for place, one in enumerate(found):
        if one != "{":
            continue
        before = found[place - 1] if place else ""
        if re.fullmatch(r"[A-Za-z_:][\w:]*", before) and before.lower() not in _WORDS:
            continue
        end = found.index("}", place) if "}" in found[place:] else len(found)
        inside = found[place + 1 : end]
        if not _names_metrics(inside):
            return "{" + "".join(inside) + "}"
    return ""


def _names_metrics(matchers: list[str]) -> bool:
    for place, label in enumerate(matchers):
        rest = matchers[place + 1 :]
        is_first = place == 0 or matchers[place - 1] == ","
        if is_first and label[0] in _QUOTES and rest[:1] in ([], [","]):
            return len(label) > 2  # {"a.metric"}, Prometheus 3 syntax
        if (
            not is_first
            or label.strip("".join(_QUOTES)) != "__name__"
            or len(rest) < 2
            or rest[0] != "="
        ):
            continue
        if rest[1] != "~":
            return len(rest[1]) > 2
        return len(rest) > 2 and all(_PREFIX.match(one) for one in rest[2][1:-1].split("|"))
    return False


def parse_number(text: str) -> float | None:
    """Return the number, or None if Python cannot parse it."""
    try:
        return float(text.replace(" ", ""))
    except ValueError:
        return None


def _outside(text: str) -> Iterator[_Token]:
    depth = 0
    for found in _TOKEN.finditer(text):
        operator = found[0]
        if operator in "([{":
            depth += 1
        elif operator in ")]}":
            depth -= 1
        elif depth == 0:
            yield _Token(operator, found.start(), found.end())


def _bare(text: str) -> str:
    """Remove comments and the brackets around the whole text."""
    tokens = [one for one in _TOKEN.findall(text) if not one.startswith("#")]
    text = "".join(tokens).strip()
    while text.startswith("(") and _is_one_pair(text):
        text = text[1:-1].strip()
    return text


def _is_one_pair(text: str) -> bool:
    """Return whether the first bracket closes at the end of the text."""
    depth = 0
    for found in _TOKEN.finditer(text):
        depth += (found[0] in "([{") - (found[0] in ")]}")
        if depth == 0:
            return found.end() == len(text)
    return False


def _unmatched(text: str) -> str:
    """Remove vector matching keywords from the start of an operand."""
    while found := _MATCHING.match(text):
        text = text[found.end() :]
    return text.strip()
