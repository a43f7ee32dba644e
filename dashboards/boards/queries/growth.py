"""PromQL for the exact growth of counters within a window.

`rate` and `increase` miss a counter's value at its first sample (a series that appears with the
value 5 grew by 5) and growth between the last sample of one window and the first of the next.
Rendering replaces them:

- For charts: `rate` over a window that overlaps the previous one, plus the whole value of a series
  that appeared. It costs five times a `rate` and is limited to counters of which a series appeared
  within the range.
- For totals and recording rules: the last value within a window less the value before it, so that
  consecutive windows add up to the exported count.

A series appeared if its target was scraped without it before the window, or if its process is young
and its target was never scraped; otherwise Prometheus is new or could not reach the target. A lower
value than before is a counter reset and counts in full.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from dashboards.boards.queries.promql import Times

GROWTH_CALL: Final = re.compile(
    r"\b(rate|increase)\(([a-zA-Z_:][\w:]*)(\{[^{}]*\})?\[(\d+)([smhd])\]( @ end\(\))?\)"
)
FINE_S: Final = 60
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_YOUNG_S: Final = 1800
_LAPSE_S: Final = 300  # s; longest scrape outage bridged between two values
_PARTS: Final = ((1800, 15), (7200, 30), (86_400, 60))  # range up to (s), window (s)
_LONG_PART_S: Final = 300
_TARGET: Final = "on (job, instance)"


def window_s(found: re.Match[str]) -> int:
    return int(found[4]) * _SECONDS[found[5]]


def find_counters(expressions: Iterable[str]) -> set[tuple[str, str]]:
    """Return the selectors whose growth is queried, each with its braces."""
    return {(one[2], one[3] or "") for text in expressions for one in GROWTH_CALL.finditer(text)}


def get_part_s(length_s: int) -> int:
    """Return the window of a total in seconds. The range must end at a multiple."""
    return next((part for longest, part in _PARTS if length_s <= longest), _LONG_PART_S)


def align_end(moment: float, length_s: int) -> int:
    """Return the evaluation time of a total for a range that ends at `moment`: at most five
    minutes later, within Prometheus' lookback, so that growth before the moment is complete.
    """
    return -int(-moment // get_part_s(length_s)) * get_part_s(length_s)


def rewrite_for_chart(
    expression: str, times: Times, appeared: Collection[str] | None = None
) -> str:
    """`appeared`: names of counters of which a series may have appeared; None means any."""

    def put(found: re.Match[str]) -> str:
        how, metric, braces, _, _, at = found.groups(default="")
        counter, length_s = f"{metric}{braces}", window_s(found)
        if at:
            return _ranking(counter, length_s)
        overlap = times.scrape_s if length_s < times.step_s + times.scrape_s else 0
        grown = f"rate({counter}[{length_s + overlap}s])"
        if appeared is None or metric in appeared:
            grown = f"(({_appeared(counter, length_s)}) / {length_s} or {grown})"
        return grown if how == "rate" else f"({grown} * {length_s})"

    return GROWTH_CALL.sub(put, expression)


def rewrite_for_total(expression: str, every_s: int) -> str:
    def put(found: re.Match[str]) -> str:
        how, metric, braces, _, _, at = found.groups(default="")
        counter, length_s = f"{metric}{braces}", window_s(found)
        if at:
            return _ranking(counter, length_s)
        grown = _between(counter, min(length_s, every_s))
        if length_s > every_s:
            # Before Prometheus 3 a range includes both ends.
            grown = f"sum_over_time({grown}[{length_s - 1}s:{every_s}s])"
        return f"({grown} / {length_s})" if how == "rate" else f"({grown})"

    return GROWTH_CALL.sub(put, expression)


def names_appeared(found: Iterable[tuple[str, str]], range_s: int) -> str:
    """Return the names of those counters of which a series appeared within
    `range_s` before the evaluation time.
    """
    by_braces: dict[str, set[str]] = {}
    for metric, braces in found:
        by_braces.setdefault(braces, set()).add(metric)
    parts = []
    for braces, metrics in sorted(by_braces.items()):
        inside = ",".join(filter(None, [f'__name__=~"{"|".join(sorted(metrics))}"', braces[1:-1]]))
        # Set operations ignore names.
        last, before = (
            f'label_replace({vector}, "metric", "$1", "__name__", "(.+)")'
            for vector in (
                f"last_over_time({{{inside}}}[{range_s}s])",
                f"{{{inside}}} offset {range_s}s",
            )
        )
        parts.append(f"count by (metric) ({last} unless {before})")
    return " or ".join(parts)


def _appeared(counter: str, length_s: int) -> str:
    last = f"last_over_time({counter}[{length_s}s])"
    return f"({last} unless {_before(counter, length_s)}) and {_TARGET} {_known_targets(length_s)}"


def _between(counter: str, length_s: int) -> str:
    """Drop the metric name in every branch, else a sum over time would see duplicate series."""
    last = f"last_over_time({counter}[{length_s}s])"
    grown = f"{last} - {_before(counter, length_s)} >= 0"
    return f"(({grown} or ({last} and {_TARGET} {_known_targets(length_s)})) + 0)"


def _before(counter: str, length_s: int) -> str:
    """Return the value before the window, also across failed scrapes, unless the target was scraped
    again since and had restarted.
    """
    before = f"offset {length_s}s"
    lapsed = f"last_over_time({counter}[{_LAPSE_S}s] {before}) unless {_TARGET} up {before} == 1"
    return f"({counter} {before} or ({lapsed}))"


def _known_targets(length_s: int) -> str:
    """Select targets whose previously unseen series were counted entirely within the window."""
    before = f"offset {length_s}s"
    scraped = f"max_over_time(up[{_LAPSE_S}s] {before}) == 1"
    ever = f"max_over_time(up[{_YOUNG_S}s] {before}) == 1"
    started = f"last_over_time(process_start_time_seconds[{length_s}s])"
    young = f"{started} > time() - {length_s} - {_YOUNG_S}"
    return f"({scraped} or ({young} unless {_TARGET} {ever}))"


def _ranking(counter: str, length_s: int) -> str:
    last = f"last_over_time({counter}[{length_s}s] @ end())"
    return f"({last} - {counter} @ end() offset {length_s}s >= 0 or {last})"
