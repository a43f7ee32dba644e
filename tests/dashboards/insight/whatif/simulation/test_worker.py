"""Tests of the simulated worker: vLLM's scheduling and cache eviction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.insight.whatif.simulation.hardware import BLOCK_TOKENS, Hardware
from dashboards.insight.whatif.simulation.worker import NEVER, FleetWorker, Job

# Round numbers: a step 1 s, a prompt token 1 ms, a decoding request 0.1 s.
PLAIN = Hardware("plain", 1.0, 0.001, 0.0, 0.1, 20 * BLOCK_TOKENS, step_tokens=2000)


def job(tag: str, chain: list[int], tokens: int = 0, answer: int = 1) -> Job:
    return Job(tag, chain, tokens or len(chain) * BLOCK_TOKENS + 100, answer)


def finish(worker: FleetWorker) -> list[Job]:
    done: list[Job] = []
    while worker.next_at != NEVER:
        done += worker.advance(worker.next_at)[1]
    return done


def test_a_prompt_is_cut_where_the_budget_of_a_step_ends() -> None:
    worker = FleetWorker(PLAIN)
    long = job("long", [], 3000)
    short = job("short", [], 500)
    worker.submit(long, 0.0)
    worker.submit(short, 0.5)  # joins the second step, which has room
    finish(worker)
    assert long.first_at == pytest.approx(3.0 + 2.5)
    assert short.first_at == pytest.approx(5.5)


def test_answers_share_the_budget_and_slow_the_step() -> None:
    worker = FleetWorker(PLAIN)
    talker = job("talker", [], 100, answer=50)
    worker.submit(talker, 0.0)
    worker.advance(1.1)
    late = job("late", [], 1999)  # exactly the budget left beside one decoding request
    worker.submit(late, 1.1)
    worker.advance(worker.next_at)  # the decode step in progress
    worker.advance(worker.next_at)
    assert late.first_at == pytest.approx(1.1 + 1.1 + 1.0 + 1.999 + 0.1)


def test_steps_of_answers_only_are_gone_through_at_once_and_broken_off_for_a_prompt() -> None:
    worker = FleetWorker(PLAIN)
    talker = job("talker", [], 1000, answer=11)
    worker.submit(talker, 0.0)
    worker.advance(2.0)
    assert worker.next_at == pytest.approx(2.0 + 10 * 1.1)
    worker.submit(job("late", [], 500), 3.5)  # in the second of them
    assert worker.next_at == pytest.approx(2.0 + 2 * 1.1)
    finish(worker)
    # Two steps alone, one with the prompt, seven more.
    assert talker.done_at == pytest.approx(2.0 + 2 * 1.1 + 1.6 + 7 * 1.1)


def test_a_prefix_is_found_and_the_last_block_is_always_computed() -> None:
    worker = FleetWorker(PLAIN)
    worker.submit(job("first", [1, 2, 3]), 0.0)
    finish(worker)
    again = job("again", [1, 2, 3])
    exact = job("exact", [1, 2, 3], 3 * BLOCK_TOKENS)
    worker.submit(again, 10.0)
    worker.submit(exact, 10.0)
    finish(worker)
    assert again.cached == 3 * BLOCK_TOKENS
    assert exact.cached == 2 * BLOCK_TOKENS
    assert worker.cache.room == worker.cache.size  # nothing is held


@pytest.mark.parametrize(
    ("chain", "reported", "cached"),
    [
        ([1, 2, 8], 2 * BLOCK_TOKENS + 40, 2 * BLOCK_TOKENS + 40),
        ([1, 8, 9], 2 * BLOCK_TOKENS + 40, 2 * BLOCK_TOKENS + 40),
        ([1, 8, 9], 3 * BLOCK_TOKENS, BLOCK_TOKENS),  # more was cached then
        ([7, 8, 9], 40, 0),  # whether its head is cached is not known
        ([1, 2, 8], -1, 2 * BLOCK_TOKENS),
    ],
)
def test_reported_tokens_continue_a_match_within_its_block(
    chain: list[int], reported: int, cached: int
) -> None:
    worker = FleetWorker(PLAIN)
    worker.submit(job("first", [1, 2, 3]), 0.0)
    finish(worker)
    again = Job("again", chain, 3 * BLOCK_TOKENS + 100, 1, reported=reported)
    worker.submit(again, 10.0)
    finish(worker)
    assert again.cached == cached
    assert again.first_at == pytest.approx(10.0 + 1.0 + 0.001 * (again.prompt_tokens - cached))


def test_a_burst_of_one_prefix_is_computed_once() -> None:
    worker = FleetWorker(PLAIN)
    jobs = [job(str(index), [1, 2, 3]) for index in range(3)]
    for each in jobs:
        worker.submit(each, 0.0)
    finish(worker)
    assert [each.cached for each in jobs] == [0, 3 * BLOCK_TOKENS, 3 * BLOCK_TOKENS]


def test_a_prompt_waits_for_memory() -> None:
    worker = FleetWorker(PLAIN)
    big = job("big", list(range(15)), answer=3)
    next_one = job("next", list(range(20, 30)))
    worker.submit(big, 0.0)
    worker.submit(next_one, 0.0)
    finish(worker)
    assert next_one.first_at > big.done_at


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 700), st.integers(1, 900)),
        max_size=40,
    )
)
def test_every_block_comes_back_and_every_job_ends(asks: list[tuple[int, int, int, int]]) -> None:
    worker = FleetWorker(PLAIN)
    jobs = []
    for at, (family, blocks, tail, answer) in enumerate(asks):
        chain = [family * 100 + block for block in range(blocks)]
        tokens = blocks * BLOCK_TOKENS + min(tail, BLOCK_TOKENS - 1)
        jobs.append(Job(str(at), chain, tokens, answer))
        while worker.next_at <= at / 4:
            worker.advance(worker.next_at)
        worker.submit(jobs[-1], at / 4)
    finish(worker)
    assert worker.cache.room == worker.cache.size >= len(worker.cache)
    for each in jobs:
        assert each.arrived < each.first_at <= each.done_at
        assert each.computed == each.prompt_tokens > each.cached


def test_a_later_prompt_reuses_the_blocks_of_an_answer_that_it_goes_on_from() -> None:
    worker = FleetWorker(PLAIN)
    worker.follow()
    size = BLOCK_TOKENS
    first = Job("first", [1, 2], 2 * size + 10, 2 * size, answer_chain=[3, 4])
    worker.submit(first, 0.0)
    finish(worker)
    turn = Job("turn", [1, 2, 3, 4, 5], 5 * size + 1, 1)
    other = Job("other", [1, 2, 6, 7, 8], 5 * size + 1, 1)
    for later in (turn, other):
        worker.submit(later, 100.0)
    finish(worker)
    assert (turn.cached, other.cached) == (4 * size, 2 * size)
    assert [change for change in worker.news if change[0] in (3, 4)] == [(3, 2), (4, 3)]
    assert worker.cache.room == worker.cache.size
