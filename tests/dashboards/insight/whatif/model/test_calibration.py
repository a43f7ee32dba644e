"""Tests of the fitted constants, on traffic of workers whose constants are known."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from dashboards.insight.traces.trace import Trace, TraceRequest
from dashboards.insight.whatif.model import least_squares
from dashboards.insight.whatif.model.calibration import (
    CalibrationError,
    apply_constants,
    calibrate,
    collect_samples,
)
from dashboards.insight.whatif.simulation.hardware import Hardware, TierModel
from tests.dashboards.insight.whatif.recorded_traffic import BLOCK, TRUTH, recorded_traffic

PROMPT = 3000  # tokens, usual in the traffic


def prompt_s(hardware: Hardware) -> float:
    return hardware.step_s + PROMPT * hardware.prefill_s + PROMPT * PROMPT / 2 * hardware.context_s


def test_known_constants_are_recovered() -> None:
    found = calibrate(recorded_traffic(), TRUTH.step_tokens)
    fitted = apply_constants(TRUTH, found.constants)
    assert prompt_s(fitted) == pytest.approx(prompt_s(TRUTH), rel=0.05)
    assert fitted.step_s == pytest.approx(TRUTH.step_s, rel=0.05)
    assert fitted.decode_s == pytest.approx(TRUTH.decode_s, rel=0.25)
    assert fitted.overhead_s == pytest.approx(TRUTH.overhead_s, rel=0.25)
    low, high = found.bounds("prefill_s")
    assert low < found.constants["prefill_s"] < high < 1.05 * low


def test_noise_widens_the_bounds() -> None:
    def width(noise: float) -> float:
        low, high = calibrate(recorded_traffic(noise=noise), 8192).bounds("step_s")
        return high - low

    assert width(0.2) > 1.5 * width(0.05)


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_noise_of_single_times_is_found_without_waits_for_a_step(noise: float) -> None:
    found = calibrate(recorded_traffic(noise=noise), TRUTH.step_tokens).noise
    assert statistics.median(found) == pytest.approx(1.0)
    logs = [math.log(one) for one in found]
    assert least_squares.deviation(logs) == pytest.approx(noise, rel=0.25)


def test_unloaded_tiers_get_a_load_time_and_sizes_stay() -> None:
    constants = calibrate(recorded_traffic(), 8192).constants
    tiered = apply_constants(replace(TRUTH, l1=TierModel(1000, 0.0)), constants)
    assert tiered.l1 is not None and tiered.l1.tokens == 1000
    assert 0 < tiered.l1.load_s < 0.1 * constants["prefill_s"]
    assert tiered.l2 is None


def test_without_durations_prompts_are_still_fitted() -> None:
    rows = [replace(one, duration_s=None) for one in recorded_traffic().requests]
    found = calibrate(Trace(BLOCK, rows), 8192)
    assert prompt_s(apply_constants(TRUTH, found.constants)) == pytest.approx(
        prompt_s(TRUTH), rel=0.15
    )


def test_requests_without_worker_or_ttft_do_not_count() -> None:
    rows = [
        TraceRequest(0.0, 10, 1, (), worker="w", ttft_s=0.1),
        TraceRequest(0.0, 10, 1, (), ttft_s=0.1),
        TraceRequest(0.0, 10, 1, (), worker="w"),
    ]
    assert len(collect_samples(rows)) == 1
    with pytest.raises(CalibrationError, match="Only 1 requests of the recording"):
        calibrate(Trace(BLOCK, rows), 8192)


def test_cached_tokens_are_split_by_the_expected_tiers() -> None:
    one = TraceRequest(0.0, 1000, 1, (), "", "w", 0.1, 600, None, (100, 300, 400))
    (sample,) = collect_samples([one])
    assert sum(sample.tiers) == 600
    assert sample.tiers[0] == 100
    (whole,) = collect_samples([replace(one, tiers=None)])
    assert whole.tiers == (600, 0, 0)
