"""The beginning of the data in a board's range."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import RANGES
from dashboards.boards.queries import Scope
from dashboards.boards.results import board
from dashboards.boards.results.board import BoardRequest
from dashboards.prometheus.http.client import QueryResult, Question, Series

NOW = 1_800_000_000
WEEK = RANGES["7d"]


class Since:
    """Prometheus whose charts have values from a moment on."""

    def __init__(self, begin: float) -> None:
        self.begin = begin

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        return {name: self._answer(question) for name, question in questions.items()}

    def _answer(self, question: Question) -> QueryResult:
        if question.window is None:
            return QueryResult()
        one = question.window
        times = range(one.start, one.start + one.points * one.step, one.step)
        values = tuple(1.0 if moment >= self.begin else None for moment in times)
        return QueryResult((Series((), values),))


@pytest.mark.parametrize(
    ("back_s", "is_said"),
    [
        (5400, True),
        (5 * 86_400, True),
        (WEEK.length_s - WEEK.step_s, False),  # an outage of minutes when the range began
        (2 * WEEK.length_s, False),
        (-1, False),  # no data at all: each panel says so
    ],
)
def test_board_says_how_far_its_data_reaches(back_s: int, is_said: bool) -> None:
    panels = [panel for panel in BOARDS["overview"].panels(one=True) if panel.kind != "numbers"]
    request = BoardRequest(Since(NOW - back_s), panels, Scope("a"), WEEK, NOW)
    found = board.measure(request)
    assert (found.first_data is not None) is is_said
    if found.first_data is not None:
        assert 0 <= found.first_data - (NOW - back_s) <= found.window.step
    assert bool(board.document(found)["first_data"]) is is_said
