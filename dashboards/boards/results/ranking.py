"""Limit lines to the busiest groups of a range, and state how many groups there are.

Prometheus returns all groups and, in a query of its own, the value to rank them by: equal rankings
of several panels are one query, and no panel reads the whole range for its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dashboards.boards.panels.declarations import Panel
from dashboards.boards.queries import TOP
from dashboards.prometheus.http.client import QueryResult

RANKING, PREVIOUS = "ranking_", "before_"
_SHOWN = re.compile(rf" ?(The {TOP} busiest|At most {TOP}) (endpoints|workers)\.")
_MANY = {"endpoint_name": "endpoints", "endpoint": "endpoints"}


def keep_busiest(
    answers: Mapping[str, QueryResult], ranked: Mapping[str, str]
) -> tuple[dict[str, QueryResult], dict[str, str]]:
    """Filter the answers of the queries in `ranked` (their label by name) by their rankings. Return
    them without the rankings, and by name how many groups of how many are shown, if not all.
    """
    kept_answers = {
        name: answer for name, answer in answers.items() if not name.startswith(RANKING)
    }
    notes = {}
    for name, label in ranked.items():
        ranking = answers[RANKING + name]
        values: dict[str, float] = {}
        for series in ranking.series:
            group = series.label(label)
            values[group] = values.get(group, 0.0) + (series.latest or 0.0)
        busiest = frozenset(sorted(values, key=lambda group: (-values[group], group))[:TOP])
        for key in (name, PREVIOUS + name):
            if key in kept_answers:
                kept_answers[key] = _keep(kept_answers[key], label, busiest, ranking)
        if len(values) > TOP:
            notes[name] = f"{TOP} busiest of {len(values)} {_MANY.get(label, 'workers')}."
    return kept_answers, notes


def _keep(
    answer: QueryResult, label: str, busiest: frozenset[str], ranking: QueryResult
) -> QueryResult:
    if ranking.fault is not None and answer.fault is None:
        return QueryResult(fault=ranking.fault)
    kept_series = tuple(series for series in answer.series if series.label(label) in busiest)
    return replace(answer, series=kept_series)


def describe(panel: Panel, notes: Mapping[str, str]) -> str:
    """Return the panel's description with the number of groups of which the busiest are shown. It
    comes first: a card cuts off the end of a long description.
    """
    own = dict.fromkeys(notes[line.query] for line in panel.lines if line.query in notes)
    about = _SHOWN.sub("", panel.about) if own else panel.about
    return " ".join(filter(None, [*own, about]))
