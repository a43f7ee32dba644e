"""Tests of figures and their intervals."""

from __future__ import annotations

import random

import pytest

from dashboards.insight.whatif.model.outcome import (
    RunTable,
    compare,
    resample,
    resample_runs,
    tabulate,
)
from dashboards.insight.whatif.model.scenario import Scenario, plan_trace, run_scenario
from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.replay import SimulatedRun
from dashboards.insight.whatif.simulation.worker import Job
from tests.dashboards.insight.whatif.recorded_traffic import TRUTH, recorded_traffic


def table(factor: float = 1.0, price: float | None = 2.0) -> RunTable:
    ttft = [factor * (1 + at / 100) for at in range(100)]
    sums = [(1, 1000, 200 + 4 * at, 100, 50, 500) for at in range(100)]
    return RunTable(ttft, list(range(100)), sums, 3600.0, price)


def test_figures_of_a_table() -> None:
    found = table().figures()
    assert found["ttft_p50_s"] == pytest.approx(1.5, abs=0.02)
    assert found["ttft_p99_s"] == pytest.approx(1.99, abs=0.02)
    assert found["hit_rate"] == pytest.approx(
        found["device_hit_rate"] + found["l1_hit_rate"] + found["l2_hit_rate"]
    )
    assert found["requests_per_s"] == pytest.approx(100 / 3600)
    assert found["cost_per_million_tokens"] == pytest.approx(2.0 / 150_000 * 1e6)


def test_spread_of_a_comparison_is_the_larger_one_between_runs() -> None:
    steady, queueing = resample([table(), table(1.1)]), resample([table(0.8), table(1.4)])
    assert compare(steady, queueing, {}).spread == pytest.approx(1.4 / 0.8 - 1)
    assert compare(steady, steady, {}).spread == pytest.approx(0.1)


def test_weights_count_a_session_several_times() -> None:
    weights = [0] * 100
    weights[99] = 3
    found = table().figures(weights)
    assert found["ttft_p50_s"] == pytest.approx(1.99)
    assert found["requests_per_s"] == pytest.approx(3 / 3600)


def test_without_a_price_there_is_no_cost() -> None:
    assert "cost_per_hour" not in table(price=None).figures()
    found = compare(resample([table(price=None)]), resample([table()]), {})
    assert "cost_per_hour" not in found.change


def test_intervals_hold_the_value_and_changes_cancel_what_is_common() -> None:
    found = compare(resample([table(), table(1.2)]), resample([table(0.5), table(0.6)]), {})
    for estimate in (*found.present.values(), *found.candidate.values(), *found.change.values()):
        assert estimate.low <= estimate.value <= estimate.high
    assert found.present["ttft_p50_s"].high > 1.6
    change = found.change["ttft_p50_s"]
    assert (change.value, change.low, change.high) == pytest.approx((-0.5, -0.5, -0.5))


def test_intervals_are_as_wide_as_the_error_of_the_backtest() -> None:
    found = compare(resample([table()]), resample([table()]), {"ttft_p50_s": -0.5, "hit_rate": 0.2})
    estimate = found.present["ttft_p50_s"]
    assert estimate.high == pytest.approx(1.5 * estimate.value)
    rate = found.present["hit_rate"]
    assert rate.high - rate.value == pytest.approx(0.2)


def two_kinds(count: int = 1000) -> tuple[SimulatedRun, Hardware]:
    """Return a run with a TTFT of 50 ms for 92 % of the requests, and of 200 ms for the rest."""
    jobs = [Job(at, (), 100, 1) for at in range(count)]
    for at, job in enumerate(jobs):
        job.first_at = job.done_at = 0.2 if at % 100 < 8 else 0.05
    return SimulatedRun(jobs, 0, [], [], (0, 0, 0)), TRUTH


def noise(seed: int, count: int = 1000) -> list[float]:
    chance = random.Random(seed)
    return [chance.lognormvariate(0.0, 0.1) for _ in range(count)]


def test_a_quantile_between_two_kinds_of_requests_is_that_of_noisy_times() -> None:
    run, _ = two_kinds()
    times = zip(run.jobs, noise(1), strict=True)
    measured = sorted(job.first_at * factor for job, factor in times)[900]
    assert tabulate(run, 0.0, None).figures()["ttft_p90_s"] < 0.85 * measured
    expected = tabulate(run, 0.0, None, noise(2)).figures()["ttft_p90_s"]
    assert expected == pytest.approx(measured, rel=0.02)


def test_interval_of_a_change_has_the_noise_of_both_measurements() -> None:
    runs = [two_kinds()]
    before, after = (resample_runs(runs, None, noise(1), seed) for seed in (0, 1))
    change = compare(before, after, {}).change["ttft_p90_s"]
    assert change.value == 0.0
    assert change.low < -0.01 < 0.01 < change.high
    same = compare(before, resample_runs(runs, None, noise(1), 0), {}).change["ttft_p90_s"]
    assert (same.low, same.high) == (0.0, 0.0)


def test_the_same_sessions_are_numbered_alike_in_all_runs() -> None:
    planned = plan_trace(recorded_traffic(300))
    tables = [
        tabulate(run_scenario(Scenario(strategy, 3, TRUTH), planned), 0.0, None)
        for strategy in ("prefixaware", "roundrobin")
    ]
    assert [one[:2] for one in tables[0].sums] == [one[:2] for one in tables[1].sums]
