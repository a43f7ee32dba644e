"""One value per ended session, in bounded memory."""

from __future__ import annotations

import math

import pytest

from routing.engine.canary import statistics
from routing.engine.canary.statistics import CanaryStatistics


def add(
    to: CanaryStatistics,
    unit: int,
    now: float = 0.0,
    ttft: float | None = 1.0,
    cached: int | None = 50,
    failed: bool = False,
) -> None:
    to.add(unit, 1, now, ttft, 100, cached, failed)


def test_a_session_counts_once_with_its_mean() -> None:
    found = CanaryStatistics(60.0)
    for ttft, cached in ((0.5, 0), (2.0, 100)):
        add(found, 7, ttft=ttft, cached=cached)
    add(found, 8, 59.0, ttft=None, cached=None, failed=True)
    arm = found.arms[1]
    assert [one.count for one in arm.sums] == [0, 0, 0]
    found.settle(60.0)
    ttft_sum, hit, errors = arm.sums
    assert (ttft_sum.count, ttft_sum.total) == (
        1,
        pytest.approx(math.log(0.5) / 2 + math.log(2) / 2),
    )
    assert (hit.count, hit.total) == (1, 0.5)
    found.settle(120.0)
    assert (errors.count, errors.total, errors.squares) == (2, 1.0, 1.0)
    assert (arm.requests, arm.errors) == (3, 1)
    assert ttft_sum.count == 1  # an error without TTFT is no TTFT


def test_requests_after_the_end_are_totals_only() -> None:
    found = CanaryStatistics(1.0)
    add(found, 7)
    add(found, 7, 10.0)  # late by itself: the session had not ended before it
    found.settle(20.0)
    add(found, 7, 30.0)
    found.settle(100.0)
    assert found.arms[1].sums[0].count == 1
    assert found.arms[1].requests == 3


def test_an_endless_session_counts_after_ten_minutes() -> None:
    found = CanaryStatistics(60.0)
    for second in range(0, 601, 30):
        add(found, 7, float(second))
    assert found.arms[1].sums[0].count == 1
    assert len(found) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_OPEN", 10)
    monkeypatch.setattr(statistics, "MAX_ENDED", 20)
    found = CanaryStatistics(60.0)
    for unit in range(100):
        add(found, unit)
    assert len(found) == 10
    assert len(found._ended) == 20
    assert found.arms[1].sums[0].count == 90


@pytest.mark.parametrize("ttft", [0.0, 1e-9, 1e9])
def test_extreme_values_stay_in_the_histogram(ttft: float) -> None:
    found = CanaryStatistics(0.0)
    add(found, 1, ttft=ttft, cached=1000)
    arm = found.arms[1]
    assert sum(arm.ttft) == 1
    assert arm.cached_tokens == 100
