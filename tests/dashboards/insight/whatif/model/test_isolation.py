"""Effect of cache isolation on traffic whose answer is known by construction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest
from dashboards.insight.whatif.model.analysis import Configuration, analyse, as_document
from dashboards.insight.whatif.model.isolation import (
    MAX_SCOPES,
    ReplayPair,
    ScopeEffect,
    check_recording,
    compare_scopes,
    measure_sharing,
    scope_of,
)
from dashboards.insight.whatif.model.scenario import Scenario, plan_trace, run_scenario
from dashboards.insight.whatif.simulation.hardware import Hardware
from tests.dashboards.insight.whatif.recorded_traffic import TRUTH, WORKERS, recorded_traffic

BLOCK = 50
SYSTEM = tuple(range(20))  # a system prompt of 1,000 tokens
AMPLE = Hardware("ample", 0.01, 1e-4, 0.0, 1e-4, 1_000_000, block_tokens=BLOCK)


def shared_prompt(count: int, groups: int = 2) -> Trace:
    """Return requests of groups in turn, 100 s apart: the system prompt and 100 tokens more."""
    rows = []
    for number in range(count):
        own = (1000 + 2 * number, 1001 + 2 * number)
        group = f"g{number % groups}"
        rows.append(TraceRequest(100.0 * number, 1100, 1, (*SYSTEM, *own), key_group=group))
    return Trace(BLOCK, rows, 0.0, "shared")


def effects(trace: Trace, replicas: int, hardware: Hardware) -> dict[str, ScopeEffect]:
    """Replay from empty caches, everything counted."""
    scenario = Scenario("roundrobin", replicas, hardware)
    present = run_scenario(scenario, plan_trace(trace), 0.0)
    isolated = plan_trace(trace, scope=lambda request: scope_of(request, "group"))
    candidate = run_scenario(scenario, isolated, 0.0)
    pair = ReplayPair(present, candidate, hardware, hardware)
    sharing = measure_sharing(trace, "group")
    found = compare_scopes(trace, "group", [pair], {}, 7.2, sharing)
    return {one.scope: one for one in found}


@pytest.mark.parametrize("replicas", [1, 3])
def test_isolation_computes_a_shared_prompt_once_more_per_worker(replicas: int) -> None:
    found = effects(shared_prompt(30), replicas, AMPLE)
    assert found[""].replay_tokens == replicas * 1000
    hours = 2900 / 3600
    assert found[""].added_prefill_s_per_hour.value == pytest.approx(0.1 * replicas / hours)
    assert found[""].added_usd_per_month is not None
    # 7.2 USD/h are 0.002 USD/s; a month has 730 hours.
    assert found[""].added_usd_per_month.value == pytest.approx(
        0.1 * replicas / hours * 0.002 * 730
    )
    change = found[""].comparison.change["hit_rate"]
    assert change.value == pytest.approx(-replicas * 1000 / (30 * 1100))


def test_isolation_costs_the_one_that_did_not_come_first() -> None:
    found = effects(shared_prompt(30), 1, AMPLE)
    assert found["group g0"].replay_tokens == 0
    assert found["group g1"].replay_tokens == 1000
    assert (found["group g0"].first_elsewhere, found["group g1"].first_elsewhere) == (0, 1000)
    assert found["group g1"].comparison.change["hit_rate"].value == pytest.approx(-1000 / 16_500)


def test_after_each_eviction_it_is_computed_once_more() -> None:
    # Each pair of requests of both groups is followed by prompts that evict everything.
    rows: list[TraceRequest] = []
    fresh = 1000
    for _ in range(8):
        for group in ("a", "b"):
            own = (fresh, fresh + 1)
            fresh += 2
            rows.append(TraceRequest(100.0 * len(rows), 1100, 1, (*SYSTEM, *own), key_group=group))
        for _ in range(2):
            filler = tuple(range(fresh, fresh + 40))
            fresh += 40
            rows.append(TraceRequest(100.0 * len(rows), 2000, 1, filler, key_group="f"))
    small = replace(AMPLE, cache_tokens=3000)
    found = effects(Trace(BLOCK, rows, 0.0, "shared"), 1, small)
    assert found[""].replay_tokens == 8 * 1000
    assert found["group b"].replay_tokens == 8 * 1000
    assert found["group a"].replay_tokens == found["group f"].replay_tokens == 0


def test_common_prefixes_are_listed_with_length_scopes_and_requests() -> None:
    found = measure_sharing(shared_prompt(30, groups=3), "group")
    assert [(one.tokens, one.scopes, one.requests) for one in found.prefixes] == [(1000, 3, 30)]
    assert measure_sharing(shared_prompt(30, groups=1), "group").prefixes == []


def test_scopes_are_groups_or_keys_outside_of_them() -> None:
    grouped = TraceRequest(0.0, 1, 1, (), key="k", key_group="g")
    single = replace(grouped, key_group="")
    assert [scope_of(one, "group") for one in (grouped, single)] == ["group g", "key k"]
    assert scope_of(grouped, "key") == "key k"
    assert scope_of(grouped, "shared") == ""


def test_many_scopes_are_summed_up() -> None:
    found = effects(shared_prompt(60, groups=30), 1, AMPLE)
    assert len(found) == MAX_SCOPES + 1
    assert found["others"].requests == 2 * (30 - MAX_SCOPES + 1)
    assert sum(one.replay_tokens for scope, one in found.items() if scope) == 29 * 1000
    assert sum(one.first_elsewhere for scope, one in found.items() if scope) == 29 * 1000


@pytest.mark.parametrize(
    ("recorded", "wanted", "message"),
    [
        ("", "key", "does not name the API keys"),
        ("key", "group", "different hashes"),
        ("group", "shared", "different hashes"),
    ],
)
def test_a_recording_that_cannot_show_it_is_refused(
    recorded: str, wanted: str, message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        check_recording(Trace(BLOCK, [], 0.0, recorded), ["key", wanted])
    check_recording(Trace(BLOCK, [], 0.0, "shared"), ["shared", "group", "key"])


PRESENT = Configuration(
    "prefixaware", WORKERS, device_tokens=TRUTH.cache_tokens, hourly_price=4.0, isolation="shared"
)


def turns_by_two_keys(timed: bool = True) -> Trace:
    """Return conversations of which every other request comes with another key."""
    trace = recorded_traffic(300)
    rows = [
        replace(one, key=f"k{number % 2}", ttft_s=one.ttft_s if timed else None)
        for number, one in enumerate(trace.requests)
    ]
    return replace(trace, requests=rows, isolation="shared")


def test_an_analysis_shows_the_effect_on_each_key() -> None:
    found = as_document(analyse(turns_by_two_keys(), PRESENT, replace(PRESENT, isolation="key")))
    effect = found["isolation"]
    assert (effect["isolation"], effect["calibrated"]) == ("key", True)
    whole, *rows = effect["rows"]
    assert {row["scope"] for row in rows} == {"key k0", "key k1"}
    assert whole["requests"] == sum(row["requests"] for row in rows) == 300
    assert found["change"]["hit_rate"]["value"] == whole["change"]["hit_rate"]["value"]
    for row in (whole, *rows):
        assert row["change"]["hit_rate"]["high"] < 0
        assert row["added_prefill_s_per_hour"]["low"] > 0
        assert row["added_usd_per_month"]["value"] > 0
    assert whole["change"]["ttft_p90_s"]["value"] > 0


def test_without_times_only_hit_rates_are_shown() -> None:
    trace = turns_by_two_keys(timed=False)
    found = as_document(analyse(trace, PRESENT, replace(PRESENT, isolation="key")))
    assert "Only 0 requests of the recording's first half" in found["backtest"]["refusal"]
    assert found["present"] is None
    effect = found["isolation"]
    assert not effect["calibrated"]
    whole = effect["rows"][0]
    assert whole["added_prefill_s_per_hour"] is whole["added_usd_per_month"] is None
    assert set(whole["change"]) == {"hit_rate", "device_hit_rate", "l1_hit_rate", "l2_hit_rate"}
    assert whole["change"]["hit_rate"]["value"] < 0


def test_times_of_invented_constants_are_never_shown() -> None:
    """The second half has times, the first has none to calibrate on."""
    trace = turns_by_two_keys()
    half = len(trace.requests) // 2
    rows = [replace(one, worker="") for one in trace.requests[:half]]
    late = [replace(one, ttft_s=0.03) for one in trace.requests[half:]]  # as predicted, by chance
    found = analyse(
        replace(trace, requests=rows + late), PRESENT, replace(PRESENT, isolation="key")
    )
    assert "first half have a worker and a TTFT" in found.backtest.refusal
    assert [row.name for row in found.backtest.rows] == ["hit_rate"]
    assert not found.comparisons
    assert found.isolation is not None and not found.isolation["calibrated"]


def test_a_wrong_hit_rate_shows_nothing() -> None:
    trace = turns_by_two_keys(timed=False)
    rows = [replace(one, cached_tokens=0) for one in trace.requests]
    cold = replace(trace, requests=rows)
    found = as_document(analyse(cold, PRESENT, replace(PRESENT, isolation="key")))
    assert "isolation" not in found
    assert "first half have a worker and a TTFT" in found["backtest"]["refusal"]
    assert "misses the measured hit rate by +" in found["backtest"]["refusal"]
    few = replace(trace, requests=trace.requests[:150])  # 75 in the backtest
    assert "isolation" not in as_document(analyse(few, PRESENT, replace(PRESENT, isolation="key")))
