"""The beginning of the data in a board's range, and values beside those of its points."""

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


class Steady:
    """Prometheus whose charts show 1, and whose values of one moment are 2 or those of `now`."""

    def __init__(self, **now: float) -> None:
        self.now = now

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        return {name: self._answer(name, question) for name, question in questions.items()}

    def _answer(self, name: str, question: Question) -> QueryResult:
        if question.window is not None:
            return QueryResult((Series((), (1.0,) * question.window.points),))
        query = name.removeprefix("newest_").replace("total_", "")
        return QueryResult((Series((), (self.now.get(query, 2.0),)),))


@pytest.mark.parametrize("key", ["15m", "1h", "24h", "30d"])
def test_current_state_is_of_now_and_percentiles_of_the_whole_range(key: str) -> None:
    panels = [p for p in BOARDS["overview"].panels(one=True) if p.id in ("now", "ttft")]
    prometheus = Steady(workers_up=7.0, ttft_p90=3.0)
    request = BoardRequest(prometheus, panels, Scope("a"), RANGES[key], NOW + 299)
    found = board.document(board.measure(request))
    now, ttft = (
        next(panel["table"] for panel in found["panels"] if panel["id"] == name)
        for name in ("now", "ttft")
    )
    assert now["head"][1] == "Last"
    assert now["rows"][0][1] == ("1" if key == "15m" else "7")
    assert ttft["head"][1:3] == ["Whole range", "Last"]
    whole = [row[1:3] for row in ttft["rows"]]
    assert whole[:3] == [["2.00 s", "1.00 s"], ["3.00 s", "1.00 s"], ["2.00 s", "1.00 s"]]


def test_percentiles_are_compared_with_those_of_the_previous_range() -> None:
    panels = [p for p in BOARDS["overview"].panels(one=True) if p.id == "ttft"]
    prometheus = Steady(ttft_p90=3.0, before_ttft_p90=6.0)
    request = BoardRequest(prometheus, panels, Scope("a"), RANGES["24h"], NOW, compare=True)
    (panel,) = board.document(board.measure(request))["panels"]
    rows = {row[0]: row[-2:] for row in panel["table"]["rows"]}
    assert rows["p90"] == ["6.00 s", "-50.0 %"]
