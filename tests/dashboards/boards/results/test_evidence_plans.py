"""Which samples and recording rules totals and counts read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dashboards.boards import queries
from dashboards.boards.panels import BOARDS
from dashboards.boards.queries import Scope, Times
from dashboards.boards.results import evidence
from dashboards.boards.results.evidence import EvidenceScope
from dashboards.prometheus.http.client import QueryResult, Question, Series

NOW = 1.8e9
HOUR, DAY = 3600, 86_400
PANELS = {panel.id: panel for panel in BOARDS["cache"].panels(one=True)}


def scope(length_s: int, covered: tuple[int, ...], targets: int = 5) -> EvidenceScope:
    times = Times(300, length_s, kept=covered)
    return EvidenceScope(Scope("a"), times, NOW, targets, covered)


@pytest.mark.parametrize(
    ("length_s", "covered", "lengths"),
    [
        (7 * DAY, (300, 3600), [7 * DAY, 3 * HOUR, 900]),
        (6 * HOUR, (60, 300), [6 * HOUR, 900, 180]),
        (900, (60, 300), [900, 180]),  # five minutes before would count
        (7 * DAY, (3600,), [7 * DAY, 7 * DAY]),  # too late: samples
        (900, (), [900, 900]),
    ],
)
def test_finer_rules_count_what_coarser_ones_lack(
    length_s: int, covered: tuple[int, ...], lengths: list[int]
) -> None:
    assert list(scope(length_s, covered).lengths.values()) == lengths


class Exported:
    """Answers which of the counters have a series, and nothing else."""

    def __init__(self, *names: str) -> None:
        self.names, self.asked = names, dict[str, Question]()

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.asked |= questions
        found = tuple(Series((("metric", name),), (1.0,)) for name in self.names)
        return {name: QueryResult(found if name == "exported" else ()) for name in questions}


@pytest.mark.parametrize("covered", [(), (60, 300)])
def test_counters_without_series_are_not_read_window_by_window(covered: tuple[int, ...]) -> None:
    """Of five kinds of failures one was exported."""
    asker = Exported("vllm:kv_offload_tiering_promotion_job_failures_total")
    failing = next(p for p in PANELS.values() if p.lines[0].query == "offload_failures")
    evidence.gather(asker, [failing], scope(6 * HOUR, covered))
    kind = "tail_" if covered else "total_"
    text = asker.asked[f"{kind}offload_failures"].query
    assert "last_over_time(vllm:kv_offload_tiering_promotion_job_failures_total" in text
    assert "last_over_time(vllm:kv_offload_tiering_cascade" not in text
    assert "rate(vllm:kv_offload_tiering_cascade" in text


@pytest.mark.parametrize(
    ("length_s", "covered", "is_recorded"),
    [(6 * HOUR, (60, 300), True), (6 * HOUR, (), False), (900, (60,), False)],
)
def test_totals_of_hours_read_the_finest_rules_if_there_are_any(
    length_s: int, covered: tuple[int, ...], is_recorded: bool
) -> None:
    panels = [p for p in BOARDS["overview"].panels(one=True) if p.kind == "numbers"]
    found = evidence.plan_totals(panels, scope(length_s, covered))
    assert found
    for question in found.values():
        assert ("emberline1m" in question.query) is is_recorded
        assert ("last_over_time(" in question.query) is not is_recorded
        assert "emberline5m" not in question.query


@pytest.mark.parametrize(
    ("length_s", "covered", "expected"),
    [
        (900, (60,), "rate(emberline_router_time_to_first_token_seconds_bucket"),
        (6 * HOUR, (), "rate(emberline_router_time_to_first_token_seconds_bucket"),
        (6 * HOUR, (60, 300), "emberline1m:emberline_router_time_to_first_token_seconds_bucket"),
        (7 * DAY, (60, 300), "emberline5m:emberline_router_time_to_first_token_seconds_bucket"),
    ],
)
def test_percentiles_read_the_histogram_of_the_whole_range(
    length_s: int, covered: tuple[int, ...], expected: str
) -> None:
    found = evidence.plan_percentiles(["ttft_p50", "ttft_p99"], scope(length_s, covered))
    assert set(found) == {"total_ttft_p50", "total_ttft_p99"}
    for question in found.values():
        assert question.query.startswith("histogram_quantile(")
        assert f"{expected}{{" in question.query
        assert f"[{length_s}s]" in question.query or f"[{1000 * length_s - 1}ms]" in question.query
        assert (question.window, question.at > NOW - 10) == (None, True)


def test_peaks_of_a_large_fleet_are_read_at_fewer_moments() -> None:
    def step(targets: int) -> str:
        times = Times(300, 6 * HOUR)
        at = EvidenceScope(Scope(), times, NOW, targets)
        panels = [
            p for p in BOARDS["cost"].panels(one=False) if not evidence.is_counted(p.lines[0])
        ]
        asker = Exported()
        evidence.gather(asker, panels[:1], at)
        name = f"total_{panels[0].lines[0].query}"
        assert f"[{6 * HOUR}s:300s] @ end()" in asker.asked[name].query  # its ranking
        return asker.asked[name].query.rsplit(":", 1)[1]

    assert queries.SCRAPE_S == 5
    assert step(20) == "5s])"
    assert step(253) == "54s])"
