"""Tests of whole analyses, on traffic of workers whose constants are known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dashboards.insight.whatif.model.analysis import Configuration, analyse, as_document, survey
from dashboards.insight.whatif.model.calibration import CalibrationError
from dashboards.insight.whatif.model.outcome import RATES
from dashboards.insight.whatif.model.scenario import Scenario, plan_trace, run_scenario
from tests.dashboards.insight.whatif.recorded_traffic import TRUTH, WORKERS, recorded_traffic

PRESENT = Configuration("prefixaware", WORKERS, device_tokens=TRUTH.cache_tokens, hourly_price=4.0)


def test_a_change_is_predicted_like_the_true_workers_show_it() -> None:
    trace = recorded_traffic()
    found = analyse(trace, PRESENT, replace(PRESENT, replicas=2))
    assert found.backtest.refusal == ""
    assert found.comparison is not None
    true = run_scenario(Scenario("prefixaware", 2, TRUTH), plan_trace(trace)).counted
    ttft = sorted(job.first_at - job.arrived + TRUTH.overhead_s for job in true)
    for name, part in (("ttft_p50_s", 0.5), ("ttft_p90_s", 0.9)):
        estimate = found.comparison.candidate[name]
        assert estimate.value == pytest.approx(ttft[int(part * len(ttft))], rel=0.1)
    change = found.comparison.change
    assert change["ttft_p90_s"].low > 0
    assert change["cost_per_hour"].value == pytest.approx(2 / 3 - 1)


def test_workers_that_changed_meanwhile_are_refused_an_answer() -> None:
    found = analyse(recorded_traffic(slower=1.6), PRESENT, PRESENT)
    assert "TTFT p50 by -" in found.backtest.refusal
    assert "the workers took 1.6 times as long as in the first half" in found.backtest.refusal
    document = as_document(found)
    assert document["present"] is document["candidate"] is document["change"] is None
    assert document["backtest"]["rows"][0]["holds"] is False


def test_hit_rates_need_no_streamed_answers() -> None:
    trace = recorded_traffic()
    whole = analyse(trace, PRESENT, replace(PRESENT, strategy="roundrobin"))
    plain = replace(trace, requests=[replace(one, ttft_s=None) for one in trace.requests])
    found = analyse(plain, PRESENT, replace(PRESENT, strategy="roundrobin"))
    assert "Only streamed answers have a TTFT" in found.backtest.refusal
    assert whole.comparison is not None and found.comparison is not None
    assert set(found.comparison.change) == {
        name for name in RATES if name in whole.comparison.change
    }
    change = found.comparison.change["hit_rate"]
    assert change.high < 0
    assert change.value == pytest.approx(whole.comparison.change["hit_rate"].value, abs=0.03)
    assert as_document(found)["candidate"].keys() == set(RATES)
    with pytest.raises(CalibrationError):
        survey(plain, PRESENT, [PRESENT, PRESENT])
    with pytest.raises(CalibrationError):
        analyse(replace(plain, requests=plain.requests[:150]), PRESENT, PRESENT)


def test_wrong_hit_rates_are_refused_without_times_too() -> None:
    trace = recorded_traffic()
    plain = replace(
        trace, requests=[replace(one, ttft_s=None, cached_tokens=0) for one in trace.requests]
    )
    found = analyse(plain, PRESENT, PRESENT)
    assert found.comparison is None
    assert "misses the measured hit rate" in found.backtest.refusal


def test_requests_of_a_canary_are_replayed_with_its_strategy() -> None:
    trace = recorded_traffic(candidate="roundrobin")
    anonymous = replace(trace, requests=[replace(one, strategy="") for one in trace.requests])
    errors, without = (
        analyse(one, PRESENT, PRESENT).backtest.errors() for one in (trace, anonymous)
    )
    assert abs(errors["hit_rate"]) < 0.02 < 0.05 < without["hit_rate"]
    promoted = replace(PRESENT, strategy="roundrobin")
    assert abs(analyse(trace, promoted, promoted).backtest.errors()["hit_rate"]) < 0.02


def test_predictions_have_one_strategy() -> None:
    trace = recorded_traffic(candidate="roundrobin")
    anonymous = replace(trace, requests=[replace(one, strategy="") for one in trace.requests])
    planned = [plan_trace(one) for one in (trace, anonymous)]
    runs = [run_scenario(Scenario("prefixaware", 2, TRUTH), one).jobs for one in planned]
    assert [job.cached for job in runs[0]] == [job.cached for job in runs[1]]


@pytest.mark.parametrize("candidate", ["kvaware", "session"])
def test_any_strategy_may_be_the_candidate(candidate: str) -> None:
    trace = recorded_traffic(400, candidate=candidate)
    assert abs(analyse(trace, PRESENT, PRESENT).backtest.errors()["hit_rate"]) < 0.03


def test_an_unknown_device_memory_is_fitted_to_the_hit_rate() -> None:
    found = analyse(recorded_traffic(400), replace(PRESENT, device_tokens=0), PRESENT)
    assert found.device_tokens_fitted
    assert abs(found.backtest.errors()["hit_rate"]) < 0.03


def test_a_larger_l1_and_faster_workers_help() -> None:
    trace = recorded_traffic()
    small = replace(PRESENT, device_tokens=20_000)
    true = replace(TRUTH, cache_tokens=20_000)
    planned = plan_trace(trace)
    tiered = replace(small, l1_tokens=2_000_000, speed=2.0)
    scenario = tiered.scenario(
        {
            "step_s": true.step_s,
            "prefill_s": true.prefill_s,
            "context_s": true.context_s,
            "decode_s": true.decode_s,
            "overhead_s": 0.0,
            "l1_load_s": 1e-6,
        }
    )
    assert scenario.hardware.prefill_s == pytest.approx(true.prefill_s / 2)
    jobs = run_scenario(scenario, planned).counted
    assert sum(job.l1_tokens for job in jobs) > 0


def test_progress_grows_to_the_end_and_may_cancel() -> None:
    shares: list[float] = []
    stages: list[str] = []

    def report(share: float, stage: str) -> None:
        shares.append(share)
        stages.append(stage)

    document = as_document(analyse(recorded_traffic(300), PRESENT, PRESENT, report))
    assert shares == sorted(shares)
    assert 0.9 < shares[-1] <= 1.0
    assert stages[0] == "Calibration"
    assert json.loads(json.dumps(document))["change"]["ttft_p50_s"]["value"] == 0.0

    class Cancelled(Exception):
        pass

    def cancel(_share: float, stage: str) -> None:
        if stage != "Calibration":
            raise Cancelled

    with pytest.raises(Cancelled):
        analyse(recorded_traffic(300), PRESENT, PRESENT, cancel)
