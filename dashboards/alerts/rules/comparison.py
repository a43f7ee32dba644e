"""Split the condition of a rule into measure and thresholds.

Works on tokens without parsing PromQL; Prometheus validates the syntax. If the condition is not a
comparison of one value, the whole condition is the measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dashboards.prometheus.http.user_query import TOKEN

_SIGNS: Final = frozenset(("==", "!=", ">=", "<=", ">", "<"))
_NARROWING: Final = frozenset(("and", "unless"))
_MATCHING = re.compile(r"\s*(?:on|ignoring|group_left|group_right)\b\s*(?:\([^)]*\))?", re.I)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison at the top of a condition. `thresholds`: operands compared with `value`, empty if
    unknown. `falls`: low values are bad.
    """

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
    words = [token.text.lower() for token in tokens]
    if "or" in words:
        return Comparison(text)
    narrowing = next((token for token in tokens if token.text.lower() in _NARROWING), None)
    if narrowing is not None:
        return parse_comparison(text[: narrowing.start])
    signs = [token for token in tokens if token.text in _SIGNS]
    if not signs or "bool" in words:
        return Comparison(text)
    starts, ends = [0, *(sign.end for sign in signs)], [*(sign.start for sign in signs), len(text)]
    value, *others = (_unmatched(text[begin:end]) for begin, end in zip(starts, ends, strict=True))
    falls = signs[0].text in ("<", "<=")
    if len(others) == 1 and parse_number(value) is not None:
        return Comparison(others[0], (value,), signs[0].text in (">", ">="))
    return Comparison(value, tuple(others), falls)


def parse_number(text: str) -> float | None:
    """Return the number, or None if Python cannot parse it."""
    try:
        return float(text.replace(" ", ""))
    except ValueError:
        return None


def _outside(text: str) -> Iterator[_Token]:
    depth = 0
    for token in TOKEN.finditer(text):
        operator = token[0]
        if operator in "([{":
            depth += 1
        elif operator in ")]}":
            depth -= 1
        elif depth == 0:
            yield _Token(operator, token.start(), token.end())


def _bare(text: str) -> str:
    """Remove comments and the brackets around the whole text."""
    tokens = [token for token in TOKEN.findall(text) if not token.startswith("#")]
    text = "".join(tokens).strip()
    while text.startswith("(") and _is_one_pair(text):
        text = text[1:-1].strip()
    return text


def _is_one_pair(text: str) -> bool:
    """Return whether the first bracket closes at the end of the text."""
    depth = 0
    for token in TOKEN.finditer(text):
        depth += (token[0] in "([{") - (token[0] in ")]}")
        if depth == 0:
            return token.end() == len(text)
    return False


def _unmatched(text: str) -> str:
    """Remove vector matching keywords from the start of an operand."""
    while match := _MATCHING.match(text):
        text = text[match.end() :]
    return text.strip()
