"""Intervals of the alert history from sampled series."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from dashboards.alerts.evaluation import timeline
from dashboards.alerts.evaluation.timeline import (
    AlertInterval,
    find_interval,
    query_timeline,
    refine_interval,
)
from dashboards.boards.queries import Scope
from dashboards.prometheus.http.client import Fault, FaultKind, QueryResult, Question, Series

NOW = 1_700_000_000
LABELS = {"alertname": "HighTTFT", "endpoint": "demo", "severity": "ticket"}


class Sampled:
    """Alerts as (labels, state, begin, end or None) in epoch seconds, answered like Prometheus."""

    def __init__(self, *alerts: tuple[Mapping[str, str], str, int, int | None]) -> None:
        self.alerts = alerts
        self.recorded_questions: list[Question] = []
        self.known_from = 0
        self.fault: Fault | None = None

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.recorded_questions += questions.values()
        return {name: self._answer(one) for name, one in questions.items()}

    def _answer(self, one: Question) -> QueryResult:
        if self.fault is not None:
            return QueryResult(fault=self.fault)
        window = one.window
        grid = [one.at] if window is None else range(window.start, window.end + 1, window.step)
        if "ALERTS" not in one.query:
            return QueryResult((Series((), tuple(_if(at >= self.known_from) for at in grid)),))
        covers = int(one.query.split("[")[1].split("s]")[0]) if "[" in one.query else 0
        found, known = [], list[tuple[tuple[str, str], ...]]()
        for labels, state, begin, end in self.alerts:
            if 'alertstate="' in one.query and f'alertstate="{state}"' not in one.query:
                continue
            since = "FOR_STATE" in one.query
            if since and any(pairs == tuple(sorted(labels.items())) for pairs in known):
                continue
            pairs = labels if since else {**labels, "alertstate": state}
            values = tuple(
                _if(begin <= at and (end is None or at - covers < end), begin if since else 1)
                for at in grid
            )
            if any(value is not None for value in values):
                known.append(tuple(sorted(pairs.items())))
                found.append(Series(tuple(sorted(pairs.items())), values))
        return QueryResult(tuple(found))


def _if(there: bool, value: float = 1.0) -> float | None:
    return float(value) if there else None


@pytest.fixture(autouse=True)
def _clock(monkeypatch: Any) -> None:
    monkeypatch.setattr(time, "time", lambda: float(NOW))


def intervals(sampled: Sampled, key: str = "24h") -> list[AlertInterval]:
    return query_timeline(sampled, Scope(), key).intervals


def test_pending_and_firing_are_joined_and_an_ongoing_alert_has_no_end() -> None:
    sampled = Sampled(
        (LABELS, "pending", NOW - 3000, NOW - 2400), (LABELS, "firing", NOW - 2400, None)
    )
    firing, pending = intervals(sampled)
    assert (firing.state, firing.ongoing, firing.end) == ("firing", True, NOW)
    assert (pending.state, pending.ongoing) == ("pending", False)
    assert pending.start == NOW - 3000  # ALERTS_FOR_STATE is exact
    assert abs(pending.end - firing.start) <= firing.step_s


def test_alert_shorter_than_a_step_is_found() -> None:
    (one,) = intervals(Sampled((LABELS, "firing", NOW - 86_000, NOW - 85_980)), "30d")
    assert one.step_s == 7200
    assert one.duration_s >= 7200


def test_intervals_that_began_before_the_range_are_marked() -> None:
    (one,) = intervals(Sampled((LABELS, "firing", NOW - 90_000, NOW - 80_000)))
    assert one.cut
    assert abs(one.start - (NOW - 86_400)) <= 25  # the grid of the range


def test_workers_of_an_endpoint_share_a_lane_with_the_worst_severity() -> None:
    page = {**LABELS, "severity": "page", "worker": "demo-1"}
    other = {**LABELS, "worker": "demo-0"}
    sampled = Sampled(
        (page, "firing", NOW - 5000, NOW - 4000), (other, "pending", NOW - 6000, None)
    )
    (lane,) = query_timeline(sampled, Scope(), "6h").lanes
    assert (lane.severity, lane.ongoing) == ("page", False)
    assert [one.state for one in lane.intervals] == ["pending", "firing", "pending"]
    assert [len(one.alerts) for one in lane.intervals] == [1, 1, 1]


def test_opened_interval_has_a_finer_resolution() -> None:
    sampled = Sampled((LABELS, "firing", NOW - 50_000, NOW - 40_000))
    found = query_timeline(sampled, Scope(), "30d")
    (one,) = found.intervals
    again = find_interval(found, "HighTTFT", "demo", "firing", one.start + 60)
    assert again == one
    assert find_interval(found, "HighTTFT", "other", "firing", one.start) is None
    fine = refine_interval(sampled, one)
    assert abs(fine.start - (NOW - 50_000)) <= timeline.FINE_S
    assert abs(fine.end - (NOW - 40_000)) <= timeline.FINE_S


def test_the_number_of_queries_and_points_is_bounded() -> None:
    for key in timeline.RANGES:
        sampled = Sampled()
        query_timeline(sampled, Scope(), key)
        assert len(sampled.recorded_questions) == 4
        assert all(
            one.window is None or one.window.points < 600 for one in sampled.recorded_questions
        )


def test_missing_history_is_reported() -> None:
    sampled = Sampled()
    sampled.known_from = NOW - 3600
    known_from = query_timeline(sampled, Scope(), "24h").known_from
    assert known_from is not None
    assert abs(known_from - (NOW - 3600)) <= 300
    sampled.fault = Fault(FaultKind.UNREACHABLE, "x refused the connection")
    assert "x refused" in query_timeline(sampled, Scope(), "24h").why
