"""Tests of the work derived from recorded requests."""

from __future__ import annotations

import pytest

from dashboards.insight.whatif.model.observed_work import Integral, Sample, list_observations


def sample(at: float, ttft: float, decode: float | None = None, tokens: int = 1000) -> Sample:
    return Sample(at, tokens, 11, (0, 0, 0), "w", "s", ttft, decode)


def test_an_integral_adds_overlapping_intervals() -> None:
    work = Integral([(0.0, 10.0, 100.0), (5.0, 10.0, 50.0)])
    assert work.between(0.0, 5.0) == pytest.approx(50.0)
    assert work.between(5.0, 10.0) == pytest.approx(100.0)
    assert work.between(10.0, 99.0) == pytest.approx(0.0)
    assert Integral([])(1.0) == 0.0


def test_prompts_that_wait_for_each_other_are_one_observation() -> None:
    rows = list_observations([sample(0.0, 1.0), sample(0.5, 1.5), sample(50.0, 1.0)], 8192)
    (busy, _), (alone, _) = rows
    assert busy.value == pytest.approx(2.0)
    assert busy.parts[:2] == (2.0, 2000.0)
    assert alone.value == pytest.approx(1.0)
    assert busy.parts[4] == alone.parts[4] == 1.0  # one arrival at an idle worker each


def test_a_long_prompt_takes_several_steps() -> None:
    ((row, _),) = list_observations([sample(0.0, 1.0, tokens=20_000)], 8192)
    assert row.parts[0] == 3.0


def test_decode_time_counts_batch_and_prompts_computed_meanwhile() -> None:
    first, second = sample(0.0, 1.0, 10.0), sample(5.0, 1.0)
    rows = list_observations([first, second], 8192)
    decode, _ = rows[-1]
    steps, prompts, _, batch, *_ = decode.parts
    assert decode.value == 10.0
    assert steps == batch == 10.0  # ten tokens after the first, alone in the batch
    assert prompts == pytest.approx(1000.0)
