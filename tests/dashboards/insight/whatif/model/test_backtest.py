"""Tests of the comparison of prediction and measurement."""

from __future__ import annotations

from dashboards.insight.traces.trace import Trace, TraceRequest
from dashboards.insight.whatif.model.backtest import backtest, measure, split_trace
from dashboards.insight.whatif.model.outcome import RunTable


def measured(count: int, ttft: float, cached: int = 50) -> list[TraceRequest]:
    return [
        TraceRequest(float(at), 100, 1, (), ttft_s=ttft, cached_tokens=cached)
        for at in range(count)
    ]


def table(ttft: float, cached: int = 50) -> RunTable:
    return RunTable([ttft] * 3, [0, 1, 2], [(1, 100, cached, 0, 0, 1)] * 3, 1.0, None)


def test_small_errors_allow_an_answer() -> None:
    found = backtest(table(1.1), measured(200, 1.0))
    assert found.refusal == ""
    assert abs(found.errors()["ttft_p50_s"] - 0.1) < 1e-9
    assert [row.name for row in found.rows] == [
        "ttft_p50_s",
        "ttft_p90_s",
        "ttft_p99_s",
        "hit_rate",
    ]


def test_a_wrong_ttft_or_hit_rate_forbids_it_and_names_the_error() -> None:
    assert "TTFT p50 by +50% (limit ±25%)" in backtest(table(1.5), measured(200, 1.0)).refusal
    assert "hit rate by +10% (limit ±5%)" in backtest(table(1.0, 60), measured(200, 1.0)).refusal


def test_workers_of_another_pace_are_the_cause_of_a_wrong_ttft_only() -> None:
    slow = backtest(table(0.5), measured(200, 1.0), 2.0).refusal
    assert "the workers took 2.0 times as long as in the first half" in slow
    fast = backtest(table(2.0), measured(200, 1.0), 0.5).refusal
    assert "0.5 times as long" in fast
    for other in (
        backtest(table(0.5), measured(200, 1.0), 1.1),
        backtest(table(1.0, 60), measured(200, 1.0), 2.0),
    ):
        assert "Check the workers' memory settings" in other.refusal
    assert backtest(table(1.0), measured(200, 1.0), 2.0).refusal == ""
    noisy = backtest(table(0.5), measured(200, 1.0), 1.0, 0.49).refusal
    assert "single times differ by 49%" in noisy
    assert (
        "Check the workers' memory settings"
        in backtest(table(1.0, 60), measured(200, 1.0), 1.0, 0.49).refusal
    )


def test_few_requests_forbid_it() -> None:
    assert "Only 20 requests" in backtest(table(1.0), measured(20, 1.0)).refusal


def test_requests_without_reports_are_left_out() -> None:
    silent = [TraceRequest(0.0, 100, 1, ()) for _ in range(5)]
    assert measure(silent) == {}
    assert measure([*silent, *measured(1, 2.0)]) == {
        "ttft_p50_s": 2.0,
        "ttft_p90_s": 2.0,
        "ttft_p99_s": 2.0,
        "hit_rate": 0.5,
    }


def test_the_later_half_is_counted() -> None:
    for count in (7, 8, 1001):
        early, warm = split_trace(Trace(64, measured(count, 1.0)))
        assert len(early.requests) == int(count * warm) == count // 2
