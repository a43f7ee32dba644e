"""Tests of a trace replayed under one configuration."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dashboards.insight.traces.trace import Trace, TraceRequest
from dashboards.insight.whatif.model.scenario import (
    MAX_BLOCKS,
    Scenario,
    join_factor,
    plan_trace,
    run_scenario,
)
from dashboards.insight.whatif.simulation.hardware import Hardware

FAST = Hardware("fast", 0.01, 1e-4, 0.0, 1e-4, 20_000, block_tokens=16)


def chat(count: int, gap_s: float = 0.2, seed: int = 1) -> Trace:
    """Return conversations whose prompts grow by 20 blocks of 16 tokens a turn."""
    chance = random.Random(seed)
    rows: list[TraceRequest] = []
    turns: dict[int, int] = {}
    for number in range(count):
        session = chance.randrange(count // 4 + 1)
        turn = turns[session] = turns.get(session, 0) + 1
        blocks = tuple(session * 10_000 + block for block in range(20 * turn))
        rows.append(TraceRequest(number * gap_s, 320 * turn, 20, blocks, f"s{session}"))
    return Trace(16, rows)


def test_equal_prompts_keep_equal_blocks_when_joined() -> None:
    trace = chat(40)
    fine, coarse = (plan_trace(trace, factor=each).requests for each in (1, 4))
    for one, joined in zip(fine, coarse, strict=True):
        assert len(joined.chain) == len(one.chain) // 4
    first = {request.session: request for request in coarse}
    for request in coarse:
        longest = first[request.session].chain
        assert list(longest[: len(request.chain)]) == list(request.chain)


def test_long_prompts_are_joined_to_few_blocks() -> None:
    blocks = tuple(range(1000))
    trace = Trace(16, [TraceRequest(0.0, 16_000, 1, blocks)])
    assert join_factor(trace) > 1
    (planned,) = plan_trace(trace).requests
    assert 1 < len(planned.chain) <= MAX_BLOCKS


def test_blocks_of_an_answer_follow_those_of_its_prompt() -> None:
    """Prompt of two and a half blocks of 32 tokens, with its answer four."""
    first = TraceRequest(0.0, 80, 48, (1, 2, 3, 4, 5), answer_blocks=(6, 7, 8))
    turn = TraceRequest(1.0, 130, 1, (1, 2, 3, 4, 5, 6, 7, 8, 9))
    begun, later = plan_trace(Trace(16, [first, turn]), factor=2).requests
    assert (len(begun.chain), len(begun.answer_chain)) == (2, 2)
    assert [*begun.chain, *begun.answer_chain] == list(later.chain)
    (unknown, _) = plan_trace(
        Trace(16, [replace(first, answer_blocks=()), turn]), factor=2
    ).requests
    assert (list(unknown.chain), list(unknown.answer_chain)) == (list(begun.chain), [])


def test_rate_compresses_arrivals() -> None:
    jobs = run_scenario(Scenario("roundrobin", 2, FAST, rate=4.0), plan_trace(chat(10))).jobs
    assert jobs[-1].arrived == pytest.approx(9 * 0.2 / 4)


def test_a_request_larger_than_the_memory_is_served() -> None:
    small = replace(FAST, cache_tokens=64)
    done = run_scenario(Scenario("prefixaware", 1, small), plan_trace(chat(20)))
    assert all(job.done_at > job.first_at for job in done.jobs)


@pytest.mark.parametrize("strategy", ["prefixaware", "kvaware", "session", "roundrobin"])
def test_every_strategy_replays_with_one_and_with_three_routers(strategy: str) -> None:
    trace = plan_trace(chat(60))
    for routers in (1, 3):
        done = run_scenario(Scenario(strategy, 2, FAST, routers), trace, warm_up=0.0)
        assert len(done.counted) == 60
        assert all(job.first_at > job.arrived for job in done.counted)


def test_strategies_that_know_prefixes_reuse_more_than_round_robin() -> None:
    trace = plan_trace(chat(200))

    def hits(strategy: str) -> int:
        return sum(job.cached for job in run_scenario(Scenario(strategy, 4, FAST), trace).jobs)

    assert hits("prefixaware") > 1.3 * hits("roundrobin")


def test_more_replicas_and_a_lower_rate_lower_the_ttft() -> None:
    trace = plan_trace(chat(200, gap_s=0.02))

    def mean_ttft(replicas: int, rate: float) -> float:
        scenario = Scenario("prefixaware", replicas, FAST, rate=rate)
        jobs = run_scenario(scenario, trace).counted
        return sum(job.first_at - job.arrived for job in jobs) / len(jobs)

    assert mean_ttft(4, 1.0) < mean_ttft(1, 1.0)
    assert mean_ttft(1, 1.0) < mean_ttft(1, 3.0)


def test_a_step_that_raises_cancels_the_replay() -> None:
    class Cancelled(Exception):
        pass

    def cancel(_arrivals: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        run_scenario(Scenario("roundrobin", 1, FAST), plan_trace(chat(1200)), step=cancel)
