"""Asking a rule's five minutes instead of every sample, where a board looks back over weeks.

Promises the same numbers as `rate` and `increase` over whole steps of five minutes: a rule keeps by
how much each counter grew a second within the last five, and a sum of these over time is what
happened, also where an endpoint was there for a part of it. Pure; whether the rules were there all
the while is asked with `not_covered`.

A counter scraped every five seconds has half a million samples in a month, and eight thousand such
steps. What asks for no single worker is asked of sums over workers, so that it does not become
dearer with their number.
"""

from __future__ import annotations

import re
from typing import Final

from dashboards.queries.shape import JOBS, QUERIES, Scope, Times

EVERY_S: Final = 300
ALL: Final = "emberline5m:"  # before a metric's name: of all workers of an endpoint
EACH: Final = "emberline5m_each:"  # with every label it had
SCRAPED: Final = "emberline5m:scraped"
OF_ONE: Final = ("engine", "instance", "pod", "worker")  # what ALL does not tell apart

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_GROWN = re.compile(
    r"\b(rate|increase)\(([a-zA-Z_:][\w:]*)(\{[^{}]*\})?\[(\d+)([smhd])\]( @ end\(\))?\)"
)
_NAMES_ONE = re.compile(rf"\b({'|'.join(OF_ONE)})\b")


def fits(times: Times) -> bool:
    """Whether steps consist of whole five minutes: others would count some of them twice."""
    return times.step_s % EVERY_S == 0


def instead(expression: str) -> str:
    """The expression, asked of what the rules keep; what they do not keep stays as it is."""
    prefix = EACH if _NAMES_ONE.search(expression) else ALL

    def put(found: re.Match[str]) -> str:
        how, metric, braces, number, unit, at = found.groups(default="")
        window_s = int(number) * _SECONDS[unit]
        if window_s % EVERY_S:
            return found[0]
        factor = EVERY_S if how == "increase" else EVERY_S / window_s
        # A millisecond less: both ends of a range belong to it before Prometheus 3.
        span = f"[{1000 * window_s - 1}ms]{at}"
        return f"(sum_over_time({prefix}{metric}{braces}{span}) * {factor!r})"

    return _GROWN.sub(put, expression)


def counters() -> tuple[str, ...]:
    """Every counter, and every part of a histogram, whose growth some query asks for."""
    times = Times(EVERY_S, EVERY_S)
    found = (_GROWN.finditer(query(Scope(), times)) for query in QUERIES.values())
    return tuple(sorted({one[2] for each in found for one in each}))


def rules() -> list[dict[str, str]]:
    """To be evaluated every five minutes."""
    jobs = "|".join(JOBS)
    found = [{"record": SCRAPED, "expr": f'count(up{{job=~"{jobs}"}})'}]
    for metric in counters():
        grown = f"rate({metric}[{EVERY_S}s])"
        summed = f"sum without ({', '.join(OF_ONE)}) ({grown})"
        found += [
            {"record": ALL + metric, "expr": summed},
            {"record": EACH + metric, "expr": grown},
        ]
    return found


def not_covered(times: Times) -> str:
    """At how many steps something was scraped and no rule kept anything; no series: at none. Asked
    at the end of the range. Looks ten minutes ahead, for a rule comes after what it adds up."""
    scraped = f'count(up{{job=~"{"|".join(JOBS)}"}})'
    known = f"last_over_time({SCRAPED}[15m] offset -10m)"
    return (
        f"sum(count_over_time(({scraped} unless on () {known})[{times.range_s}s:{times.step_s}s]))"
    )
