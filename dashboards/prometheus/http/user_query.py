"""PromQL that users write, for alert rules and board panels: checked by Prometheus before use."""

from __future__ import annotations

import re
import time
from typing import Final

from console.core.errors import Problem, Refused
from dashboards.prometheus.http.client import Asker, FaultKind, Question

MOST_SERIES: Final = 300
"""Series of one query that a chart or a dry run shows."""
AGGREGATE_REMEDY: Final = "Aggregate, as in sum by (endpoint) (...), or match fewer label values."
NARROW_REMEDY: Final = (
    "Select one metric, match an endpoint or job, shorten ranges such as [5m], or record it."
)
_NOTHING_AT = 1
TOKEN = re.compile(
    r"""#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`"""
    r"|[()\[\]{}]|[=!<>]=|[<>]|[A-Za-z_:][\w:]*|.",
    re.DOTALL,
)
# Keywords that may precede a selector.
_WORDS: Final = frozenset(
    ("and", "or", "unless", "bool", "on", "ignoring", "group_left", "group_right", "by", "without")
)
_QUOTES: Final = ('"', "'", "`")
_PREFIX = re.compile(r"\^?(?:\((?:\?:)?)*[A-Za-z_:][A-Za-z0-9_:]{2}")


def count_series(asker: Asker, query: str, field: str) -> int:
    """Return the number of series for which the query has a value now.

    Raise `Refused` for invalid PromQL, for timeouts and if no Prometheus responds (503).
    """
    counted = f"count(\n{query}\n)"
    answers = asker.ask(
        {
            # Alone, since other texts are valid inside brackets; at a time without data, to cost
            # little.
            "it": Question(query, _NOTHING_AT, heavy=True),
            "count": Question(counted, int(time.time()), join="sum", heavy=True),
        }
    )
    fault = answers["it"].fault or answers["count"].fault
    if fault is None:
        return int(sum(series.latest or 0 for series in answers["count"].series))
    if fault.kind is FaultKind.BAD_QUERY:
        text = f"Prometheus rejected the expression: {fault.detail.rstrip('.')}."
        raise Refused(Problem(field, query[:200], text, "Correct the expression.", "promql"))
    if fault.kind in (FaultKind.TOO_SLOW, FaultKind.TOO_EXPENSIVE):
        text = f"Evaluation is too expensive: {fault.detail.rstrip('.')}."
        raise Refused(Problem(field, query[:200], text, NARROW_REMEDY, "too_expensive"))
    text = f"The expression could not be validated. {fault.detail}"
    remedy = "Try again when Prometheus responds."
    raise Refused(Problem(field, query[:200], text, remedy, "not_checked"), status_code=503)


def check_series(asker: Asker, query: str, field: str, most: int, use: str) -> None:
    """Raise `Refused` if the query has more than `most` series. `use`: completes the sentence."""
    count = count_series(asker, query, field)
    if count > most:
        text = f"The query matches {count} series{use}. Limit: {most}."
        raise Refused(Problem(field, query[:200], text, AGGREGATE_REMEDY, "too_many_series"))


def refuse_unselective(query: str, field: str) -> Problem | None:
    """Return the problem of a query that would select all series, None without one."""
    selector = find_unselective(query)
    if not selector:
        return None
    text = f"{selector[:80]} has no metric name and would select all series."
    remedy = "Add a metric name before the braces, such as vllm:num_requests_waiting{...}."
    return Problem(field, query[:200], text, remedy, "unselective")


def find_unselective(condition: str) -> str:
    """Return the first selector without a metric name, such as `{__name__=~".+"}`, or "".

    A regular expression names metrics if each alternative begins with 3 literal characters.
    """
    words = [word for word in TOKEN.findall(condition) if word.strip() and not word.startswith("#")]
    for place, word in enumerate(words):
        if word != "{":
            continue
        before = words[place - 1] if place else ""
        if re.fullmatch(r"[A-Za-z_:][\w:]*", before) and before.lower() not in _WORDS:
            continue
        end = words.index("}", place) if "}" in words[place:] else len(words)
        inside = words[place + 1 : end]
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
        return len(rest) > 2 and all(_PREFIX.match(part) for part in rest[2][1:-1].split("|"))
    return False
