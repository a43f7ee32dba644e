"""Counters that a query sums over all endpoints at once.

Recording rules keep their growth by the labels that such queries name: a panel of the whole fleet
then reads a few series instead of those of every endpoint. Queries of some endpoints, or by
endpoint, read the sums of each endpoint; so do alternatives joined by `or` before they are summed,
because endpoints may export different ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_ENDPOINT = re.compile(r"\b(endpoint|endpoint_name|namespace)\b")
_BEFORE = re.compile(r"\bsum(?: by \(([\w, ]+)\) )?\((?:label_replace\()*$")
_TEXT = r'"(?:[^"\\]|\\.)*"'
_AFTER = re.compile(rf"(?:, {_TEXT}, {_TEXT}, {_TEXT}, {_TEXT}\))*\)")
_RELABELED = re.compile(rf', {_TEXT}, {_TEXT}, "(\w*)", {_TEXT}\)')
_MATCHED = re.compile(rf"(\w+)(?:=~?|!=|!~){_TEXT}")


def names_endpoint(expression: str) -> bool:
    return _ENDPOINT.search(expression) is not None


def is_summed(expression: str, call: re.Match[str]) -> bool:
    """Whether the growth of the call is an argument of a sum, at most relabeled before."""
    return _sum_around(expression, call) is not None


def _sum_around(expression: str, call: re.Match[str]) -> tuple[re.Match[str], re.Match[str]] | None:
    before = _BEFORE.search(expression, 0, call.start())
    after = _AFTER.match(expression, call.end())
    return (before, after) if before and after else None


def collect_labels(calls: Iterable[tuple[str, re.Match[str]]]) -> dict[str, set[str]]:
    """Return the labels by which each counter must be recorded, from calls with their expression;
    the second group of a call is its metric, the third its braces.
    """
    labels: dict[str, set[str]] = {}
    for expression, call in calls:
        around = None if names_endpoint(expression) else _sum_around(expression, call)
        if around is None:
            continue
        before, after = around
        made = set(re.findall(r"\w+", before[1] or ""))
        named = {*_MATCHED.findall(call[3] or ""), *_RELABELED.findall(after[0])}
        labels.setdefault(call[2], set()).update(made | named - {""})
    return labels
