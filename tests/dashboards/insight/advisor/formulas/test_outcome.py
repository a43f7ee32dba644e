"""Measured changes against promised ones."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dashboards.insight.advisor.formulas.outcome import (
    CAME,
    MISSED,
    UNTOLD,
    describe_drift,
    describe_mix,
    judge_change,
    measure_changes,
    summarize,
)
from dashboards.insight.traces.trace import TraceRequest
from dashboards.insight.whatif.model.outcome import Estimate

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
    """The later requests are a fifth faster without the change, and the change halves the rest."""
    chance = random.Random(4)
    before = [replace(one, ttft_s=chance.uniform(0.1, 2.0)) for one in requests(0.4)]
    later = [replace(one, ttft_s=chance.uniform(0.08, 1.6)) for one in requests(0.4)]
    after = [replace(one, ttft_s=(one.ttft_s or 0.0) / 2, cached_tokens=90) for one in later]
    later = [replace(one, cached_tokens=60) for one in later]
    old, new = summarize(before), summarize(after, seed=1)
    expected = (summarize(before), summarize(later, seed=1))
    raw, found = measure_changes(old, new), measure_changes(old, new, expected)
    for name in ("ttft_p50_s", "ttft_p90_s"):
        assert found[name].value == pytest.approx(-0.5)
        assert found[name].high - found[name].low < 1e-6, "what a model explains is no noise"
        assert raw[name].high - raw[name].low > 0.02
    assert raw["hit_rate"].value == pytest.approx(0.4)
    assert found["hit_rate"].value == pytest.approx(0.3)
    assert "Hit rate +10.0 points (+10.0 to +10.0)" in describe_drift(measure_changes(*expected))


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
