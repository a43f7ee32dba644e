"""Benchmark verdicts on generated runs with a known difference."""

from __future__ import annotations

import random

import pytest

from dashboards.benchmarks.generator.comparison import (
    Comparison,
    compare,
    cumulative_curve,
    list_differences,
)
from dashboards.benchmarks.generator.samples import (
    BUCKETS,
    Histogram,
    RequestSample,
    Series,
    percentile,
    result,
    summarize_values,
)


def run(mean_s: float, seed: int, sessions: int = 60, turns: int = 4, own: float = 0.0) -> list:
    """`own`: how much a conversation's requests have in common."""
    chance = random.Random(seed)
    found = []
    for session in range(sessions):
        common = chance.lognormvariate(0, own) if own else 1.0
        for turn in range(turns):
            ttft = mean_s * common * chance.lognormvariate(0, 0.3)
            found.append(
                RequestSample(
                    session * 1.0, session, turn, 0, ttft, ttft + 0.5, 100, 11, 0, "w", ""
                )
            )
    return found


def labelled(found: Comparison, label: str) -> object:
    return next(row for row in found.rows if row.label == label)


def test_real_difference_is_reported_with_its_interval() -> None:
    found = compare(run(0.2, 1), run(0.1, 2))
    row = found.rows[0]
    assert row.label == "TTFT p50"
    assert row.low < -0.5 < row.high
    assert row.better
    assert found.confident
    assert found.verdict.startswith("B is faster")
    assert compare(run(0.1, 1), run(0.2, 2)).verdict.startswith("A is faster")


def test_random_difference_is_not_reported() -> None:
    """Of twelve pairs of equal runs one may be called different at 95 %; that conversations
    hang together must not make it more."""
    called = [
        compare(run(0.2, 2 * n, own=0.6), run(0.2, 2 * n + 1, own=0.6)).rows[0].sure
        for n in range(12)
    ]
    assert sum(called) <= 2


def test_equal_samples_give_equal_verdicts() -> None:
    assert compare(run(0.2, 1), run(0.19, 2)) == compare(run(0.2, 1), run(0.19, 2))


def test_too_few_samples_give_no_verdict() -> None:
    found = compare(run(0.2, 1, sessions=5), run(0.1, 2, sessions=5, turns=3))
    assert not found.confident
    assert found.verdict.startswith("No verdict")
    assert "15 responses" in " ".join(found.caveats)
    assert found.rows[2].low is None  # no p99 of twenty


def test_few_conversations_with_many_turns_count_as_few() -> None:
    found = compare(run(0.2, 1, sessions=5, turns=50), run(0.1, 2, sessions=5, turns=50))
    assert "5 conversations" in " ".join(found.caveats)


def test_objections_remove_the_verdict() -> None:
    found = compare(run(0.2, 1), run(0.1, 2), ["They were not asked the same."])
    assert not found.confident
    assert "faster" not in found.verdict


def test_nothing_to_compare() -> None:
    assert compare([], []).verdict.startswith("No verdict")
    assert cumulative_curve([]) == []


def test_failed_and_uncounted_requests_are_not_compared() -> None:
    slow = [RequestSample(0, 900 + n, 0, 0, 9.0, 9.0, 1, 1, 0, "w", "", False) for n in range(500)]
    bad = [RequestSample(0, 900 + n, 0, 0, None, 9.0, 1, 1, 0, "w", "timeout") for n in range(500)]
    assert compare([*slow, *bad, *run(0.2, 1)], run(0.1, 2)).rows[0].a == pytest.approx(
        0.2, rel=0.2
    )


def test_jobs_differ_by_their_fields_but_not_by_their_nonce() -> None:
    assert list_differences({"rate": 1, "nonce": "a"}, {"rate": 1, "nonce": "b"}) == []
    assert list_differences({"rate": 1}, {"rate": 2}) == ["rate: 1 in A, 2 in B"]


def test_percentile_needs_enough_requests() -> None:
    assert summarize_values([0.1] * 9)["p90"] is None
    assert summarize_values([0.1] * 99)["p99"] is None
    assert summarize_values(range(1, 101))["p99"] == 99
    assert summarize_values([])["mean"] is None
    assert percentile([1.0], 50) == 1.0


def test_the_histogram_is_within_two_percent() -> None:
    found, chance = Histogram(), random.Random(1)
    values = sorted(chance.lognormvariate(-3, 1) for _ in range(5000))
    for value in values:
        found.add(value)
    for percent in (50, 90, 99):
        exact = percentile(values, percent)
        assert exact is not None
        assert found.percentile(percent) == pytest.approx(exact, rel=0.021)
    assert len(found.counts) < 800


def test_failed_requests_are_counted_but_not_as_fast() -> None:
    bad = [RequestSample(0, 1, 0, 0, None, 0.001, 0, 0, None, "", "http_503")] * 3
    found = result([*run(0.2, 1), *bad], Histogram(), 10)
    assert (found["requests"], found["failed"]) == (240, 3)
    assert found["ttft"]["count"] == 240
    assert found["tpot"]["p50"] == pytest.approx(0.05)
    assert found["requests_s"] == 24


def test_long_run_has_bounded_points_and_loses_no_request() -> None:
    series = Series()
    for second in range(3000):
        sample = RequestSample(second, 1, 0, 0, 0.1, 0.2, 10, 2, 0, "w", "")
        series.at(second).sent += 1
        tiers = series.at(second).tiers
        tiers["device"] = tiers.get("device", 0.0) + 10
        series.ended(sample)
    found = series.document()
    assert BUCKETS / 2 < len(found["done"]) <= BUCKETS
    assert found["width_s"] == 16
    for name, total in (("done", 3000), ("sent", 3000), ("prompt", 30_000)):
        assert sum(found[name]) * found["width_s"] == pytest.approx(total, rel=0.01)
    assert sum(found["tiers"]["device"]) * found["width_s"] == pytest.approx(30_000, rel=0.01)
    assert found["ttft_p90"][-2] == 0.1
