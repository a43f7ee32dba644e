"""Measured changes against promised ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.advisor.formulas.outcome import (
    CAME,
    MISSED,
    UNTOLD,
    adjust,
    describe_mix,
    judge_change,
    measure_changes,
    summarize,
)
from routing.traces.trace import TraceRequest
from routing.whatif.model.outcome import Estimate

FASTER = {"ttft_p90_s": Estimate(-0.3, -0.4, -0.2)}


def requests(ttft_s: float, cached: int = 50, rate: float = 1.0) -> list[TraceRequest]:
    return [
        TraceRequest(at / rate, 100, 10, (), f"s{at % 40}", "w", ttft_s + at % 7 / 100, cached)
        for at in range(200)
    ]


def test_changes_have_intervals_of_resampled_sessions() -> None:
    after = summarize(requests(0.2, cached=80), seed=1)
    found = measure_changes(summarize(requests(0.4)), after)
    assert found["ttft_p50_s"].value == pytest.approx(0.23 / 0.43 - 1, abs=0.03)
    assert found["hit_rate"].value == pytest.approx(0.3)
    for one in found.values():
        assert one.low <= one.value <= one.high


def test_samples_are_resampled_independently() -> None:
    one = [replace(one, ttft_s=0.1 + at / 100) for at, one in enumerate(requests(0.2))]
    found = measure_changes(summarize(one), summarize(one, seed=1))["ttft_p50_s"]
    assert found.low < -0.03 and found.high > 0.03


def test_without_cached_tokens_there_is_no_hit_rate() -> None:
    bare = [TraceRequest(at, 100, 10, (), "", "w", 0.3) for at in range(150)]
    found = measure_changes(summarize(bare), summarize(bare))
    assert set(found) == {"ttft_p50_s", "ttft_p90_s"}
    assert "figures" not in summarize(bare[:99])


def test_what_other_requests_change_is_taken_off() -> None:
    measured = {"ttft_p90_s": Estimate(-0.28, -0.37, -0.19), "hit_rate": Estimate(0.1, 0.0, 0.2)}
    found = adjust(measured, {"ttft_p90_s": -0.1, "hit_rate": 0.04})
    assert found["ttft_p90_s"].value == pytest.approx(-0.2)
    assert found["hit_rate"].low == pytest.approx(-0.04)
    assert adjust(measured, {})["ttft_p90_s"].low == pytest.approx(-0.37)


def test_another_rate_is_another_mix() -> None:
    one = summarize(requests(0.2))
    assert describe_mix(one, summarize(requests(0.2, rate=1.1))) == ""
    assert "requests/s +100%" in describe_mix(one, summarize(requests(0.2, rate=2.0)))


@pytest.mark.parametrize(
    ("measured", "exact", "verdict"),
    [
        (Estimate(-0.25, -0.3, -0.1), False, CAME),
        (Estimate(-0.05, -0.1, -0.01), False, MISSED),
        (Estimate(-0.2, -0.5, 0.1), False, UNTOLD),
        (Estimate(-0.9, -0.95, -0.8), False, CAME),
    ],
)
def test_a_promised_gain(measured: Estimate, exact: bool, verdict: str) -> None:
    assert judge_change(FASTER, {"ttft_p90_s": measured}, exact).verdict == verdict


def test_a_smaller_bill_came_unless_ttft_is_worse_than_promised() -> None:
    slower = {"ttft_p90_s": Estimate(0.1, 0.0, 0.2)}
    for measured, verdict in ((0.15, CAME), (0.5, MISSED)):
        change = {"ttft_p90_s": Estimate(measured, measured - 0.1, measured + 0.1)}
        assert judge_change(slower, change, True).verdict == verdict
    assert judge_change({}, {}, True).verdict == UNTOLD
