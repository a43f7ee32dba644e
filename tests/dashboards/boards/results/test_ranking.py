"""Lines of the busiest groups, chosen after the query and counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import RANGES
from dashboards.boards.panels.overview import TTFT_BY_ENDPOINT
from dashboards.boards.queries import TOP, Scope
from dashboards.boards.results import board, ranking
from dashboards.prometheus.http.client import Fault, FaultKind, QueryResult, Question, Series

GROUPS = 50
QUERY = TTFT_BY_ENDPOINT.lines[0].query


def grouped(values: Mapping[str, float]) -> QueryResult:
    named = (((("endpoint_name", name),), value) for name, value in values.items())
    return QueryResult(tuple(Series(labels, (value,)) for labels, value in named))


EVERY = {f"llm-{number:02}": float(number) for number in range(GROUPS)}


def test_busiest_groups_are_kept_and_counted() -> None:
    slow = grouped(dict.fromkeys(EVERY, 1.0))
    answers = {QUERY: slow, f"before_{QUERY}": slow, "other": slow}
    found, notes = ranking.keep_busiest(
        answers | {f"ranking_{QUERY}": grouped(EVERY)}, {QUERY: "endpoint_name"}
    )
    busiest = sorted(EVERY, key=lambda name: -EVERY[name])[:TOP]
    for name in (QUERY, f"before_{QUERY}"):
        assert {one.label("endpoint_name") for one in found[name].series} == set(busiest)
    assert found["other"] == slow
    assert f"ranking_{QUERY}" not in found
    alone = replace(TTFT_BY_ENDPOINT, about="The 12 busiest endpoints.")
    assert ranking.describe(alone, notes) == "12 busiest of 50 endpoints."
    longer = replace(TTFT_BY_ENDPOINT, about="At the router. The 12 busiest endpoints.")
    assert ranking.describe(longer, notes) == "12 busiest of 50 endpoints. At the router."


def test_few_groups_are_all_shown_without_a_note() -> None:
    few = grouped(dict.fromkeys(list(EVERY)[:TOP], 1.0))
    answers = {QUERY: few, f"ranking_{QUERY}": few}
    found, notes = ranking.keep_busiest(answers, {QUERY: "endpoint_name"})
    assert found[QUERY] == few
    assert ranking.describe(TTFT_BY_ENDPOINT, notes) == TTFT_BY_ENDPOINT.about


def test_panel_without_a_ranking_reports_its_fault() -> None:
    """Lines of any twelve would be wrong."""
    fault = Fault(FaultKind.TOO_SLOW, "slow")
    answers = {QUERY: grouped(EVERY), f"ranking_{QUERY}": QueryResult(fault=fault)}
    found, _ = ranking.keep_busiest(answers, {QUERY: "endpoint_name"})
    assert found[QUERY].fault == fault


class Rounds:
    """A Prometheus with 250 targets that records the queries of a batch."""

    def __init__(self) -> None:
        self.rounds: list[Mapping[str, Question]] = []

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.rounds.append(questions)
        return {name: self._answer(name, one) for name, one in questions.items()}

    def _answer(self, name: str, question: Question) -> QueryResult:
        if name.startswith("missing_") or name in ("added", "pods"):
            return QueryResult()
        if name.startswith("targets_"):
            up = ("vllm", "router", "l2")
            return QueryResult(tuple(Series((("job", job),), (1.0,)) for job in up))
        value = {"scraped": 250.0, "scraped_every": 5.0}.get(name, 1.0)
        points = question.window.points if question.window else 1
        return QueryResult((Series((), (value,) * points),))


@pytest.mark.parametrize("key", ["15m", "6h", "7d"])
def test_board_of_a_large_fleet_takes_two_rounds(key: str) -> None:
    """What the queries depend on, and the queries; without reading the range for each ranking."""
    asker = Rounds()
    # Panels of exporters outside the fleet have no target to be up.
    panels = [one for one in BOARDS["overview"].panels(one=False) if one.kind != "numbers"]
    request = board.BoardRequest(asker, panels, Scope(), RANGES[key], 1.8e9)
    board.document(board.measure(request.fit()))
    assert len(asker.rounds) == 2, [list(one) for one in asker.rounds]
    survey, queries = asker.rounds
    assert {"scraped", "scraped_every"} < set(survey)
    assert ("added" in survey) is (key == "15m")
    assert "missing_60" in survey or key == "7d"
    ranged = [one.query for one in queries.values() if one.window is not None]
    assert ranged
    assert not any("topk" in text or "@ end()" in text for text in ranged)
    rankings = [one for name, one in queries.items() if name.startswith("ranking_")]
    assert rankings
    assert all(one.window is None for one in rankings)
    assert len({one.query for one in rankings}) < len(rankings), "equal ones are one query"
