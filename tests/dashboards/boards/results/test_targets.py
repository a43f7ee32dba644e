"""Rate windows follow the scrape interval."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from dashboards.boards import queries
from dashboards.boards.panels import overview
from dashboards.boards.panels.declarations import RANGES
from dashboards.boards.queries import Scope
from dashboards.boards.queries.metric_names import REQUESTS
from dashboards.boards.results import board
from dashboards.boards.results import targets as intervals
from dashboards.prometheus.http.client import (
    Fault,
    FaultKind,
    Prometheus,
    QueryResult,
    Question,
    Series,
)
from tests.support.dashboards.fixtures import Scraping

FLEET = Scope()
NOW = 1_800_000_000.0


class StubPrometheus:
    """Prometheus with this scrape interval (s); None: no response."""

    def __init__(self, every: float | None) -> None:
        self.every = every
        self.recorded_questions: list[str] = []

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.recorded_questions += [question.query for question in questions.values()]
        if self.every is None:
            return dict.fromkeys(questions, QueryResult(fault=Fault(FaultKind.UNREACHABLE, "away")))
        return dict.fromkeys(questions, QueryResult((Series((), (self.every,)),)))

    @property
    def windows(self) -> set[bool]:
        """Return whether requests were queried over one minute."""
        return {
            "[60s]" in query for query in self.recorded_questions if f"rate({REQUESTS}" in query
        }


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    intervals.clear_memory()
    yield
    intervals.clear_memory()


def test_board_looks_back_four_scrapes() -> None:
    for every, wide in ((15.0, {True}), (1.0, {False}), (None, {False})):
        intervals.clear_memory()
        reported = StubPrometheus(every)
        board.collect(reported, [overview.OUTCOME], FLEET, RANGES["15m"], NOW)
        assert reported.windows == wide, every


def test_interval_is_cached() -> None:
    assert (
        intervals.get_interval_s(StubPrometheus(1.0), Scope(endpoint="quick"), NOW)
        == queries.SCRAPE_S
    )
    reported = StubPrometheus(30.2)
    assert intervals.get_interval_s(reported, FLEET, NOW) == 30
    assert intervals.get_interval_s(reported, FLEET, NOW + intervals.MEMORY_S - 1) == 30
    assert len(reported.recorded_questions) == 2, "that, and of how many targets"
    assert intervals.get_interval_s(reported, FLEET, NOW + intervals.MEMORY_S) == 30
    assert intervals.get_interval_s(reported, Scope(endpoint="demo"), NOW) == 30
    assert len(reported.recorded_questions) == 6


def test_unknown_interval_is_not_cached() -> None:
    reported = StubPrometheus(None)
    for _ in range(2):
        assert intervals.get_interval_s(reported, FLEET, NOW) == queries.SCRAPE_S
    assert len(reported.recorded_questions) == 4


def test_scrape_interval_is_read_from_prometheus(scraping: Scraping) -> None:
    client = Prometheus(scraping.url)
    question = Question(intervals.scraped_every(Scope()), int(time.time()))
    (series,) = client.ask({"q": question})["q"].series
    client.close()
    assert 1 <= series.latest <= queries.SCRAPE_S + 0.2, "shorter intervals do not matter"
