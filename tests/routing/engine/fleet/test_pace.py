"""Pace of workers learned from TTFTs, and its effect on load and picks."""

from __future__ import annotations

import random

import pytest

from routing.engine.fleet import pace
from routing.engine.fleet.load import RequestCharge, set_pace
from routing.engine.fleet.pace import PaceMeter
from routing.engine.fleet.workers import Worker
from routing.engine.policies import cost
from routing.engine.policies.prefixaware import PrefixAware
from tests.routing.engine.fleet.test_load import table, workers
from tests.routing.engine.harness import admin, ask, chat, metric, post, router
from tests.routing.engine.policies.test_ranking import blocks, facts
from tests.routing.engine.test_exchange_failures import refuse
from tests.support.fake_worker import FakeWorker

START_S, TOKEN_S = 0.02, 40e-6


def learned(fleet: list[Worker], factors: list[float], samples: int = 2000) -> PaceMeter:
    """Return a meter after noisy responses of workers with these factors of a worker's times."""
    meter, chance = PaceMeter(), random.Random(7)
    for _ in range(samples):
        number = chance.randrange(len(fleet))
        work = int(chance.paretovariate(0.8) * 200) % 60_000
        ttft_s = factors[number] * (START_S + TOKEN_S * work) * chance.uniform(0.7, 1.3)
        meter.learn(fleet[number].id, work, ttft_s)
        if meter.due:
            meter.apply(fleet)
    return meter


def test_slow_workers_are_found_and_equal_ones_stay_equal() -> None:
    fleet = workers(8)
    learned(fleet, [2.5] * 4 + [1.0] * 4)
    assert all(2.2 < worker.pace < 2.8 for worker in fleet[:4])
    assert [worker.pace for worker in fleet[4:]] == [1.0] * 4
    assert all(worker.slowness == cost.slowness(worker.pace) > 0 for worker in fleet[:4])
    equal = workers(8)
    learned(equal, [1.0] * 8)
    assert {worker.pace for worker in equal} == {1.0}
    learned(equal, [1.3] + [1.0] * 7)
    assert {worker.pace for worker in equal} == {1.0}, "less than the tolerance"


def test_one_extreme_response_does_not_make_a_worker_slow() -> None:
    fleet = workers(4)
    meter = learned(fleet, [1.0] * 4)
    meter.learn(fleet[0].id, 100, 300.0)
    meter.apply(fleet)
    assert fleet[0].pace == 1.0


def test_new_workers_count_as_fast_until_they_are_known() -> None:
    fleet = workers(3)
    meter = learned(fleet[:2], [1.0, 1.0])
    for _ in range(pace.MIN_SAMPLES - 1):
        meter.learn(fleet[2].id, 10_000, 4.0)
    meter.apply(fleet)
    assert fleet[2].pace == 1.0
    meter.learn(fleet[2].id, 10_000, 4.0)
    meter.apply(fleet)
    assert fleet[2].pace > 4
    meter.forget(fleet[2])
    assert (fleet[2].pace, fleet[2].slowness) == (1.0, 0.0)
    meter.apply(fleet)
    assert fleet[2].pace == 1.0


def test_a_slow_worker_without_requests_is_tried_again() -> None:
    fleet = workers(2)
    meter = learned(fleet, [1.0, 3.0])
    assert fleet[1].pace > 2
    for _ in range(100):
        meter.learn(fleet[0].id, 10_000, START_S + TOKEN_S * 10_000)
        meter.apply(fleet)
    assert fleet[1].pace == 1.0


def test_load_takes_longer_on_a_slow_worker() -> None:
    fleet = table(2)
    slow, fast = fleet.eligible
    set_pace(slow, 2.5)
    for worker in (slow, fast):
        RequestCharge(worker, 1000)
    assert slow.load == 2.5 * fast.load


def test_a_new_prompt_goes_to_the_fast_worker_and_a_known_one_stays() -> None:
    fleet, policy = table(2), PrefixAware(1000)
    slow, fast = fleet.eligible
    set_pace(slow, 4.0)
    known = facts(blocks("known", 40))
    policy.sent(known, slow)
    assert policy.rank(known, fleet.fleet).worker is slow
    picks = [policy.rank(facts(blocks(number, 40)), fleet.fleet) for number in range(20)]
    assert all(pick.worker is fast for pick in picks)


async def test_only_streamed_answers_of_one_attempt_are_samples() -> None:
    async with FakeWorker() as bad, FakeWorker() as good, router(bad, good) as server:
        meter = server.router.pace
        await ask(server, post(chat("hi")))
        assert meter._samples == 0, "the time of a whole response says little about its prompt"
        await ask(server, post(chat("hi", stream=True, prompt_logprobs=1)))
        assert meter._samples == 0, "the engine computes what is cached, too"
        await ask(server, post(chat("hi", stream=True)))
        assert meter._samples == 1
        bad.script = refuse
        answers = [await ask(server, post(chat(f"{i}", stream=True))) for i in range(4)]
        assert {answer.status for answer in answers} == {200}
        assert len(bad.requests) > 1
        decisions = (await admin(server, "/decisions")).json["decisions"][:4]
        assert meter._samples == 1 + sum(item["attempts"] == 1 for item in decisions) < 5


async def test_pace_is_reported() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        (target,) = server.router.table.workers.values()
        set_pace(target, 2.504)
        assert (await admin(server, "/workers")).json["workers"][0]["pace"] == 2.5
        name = "emberline_router_worker_pace_ratio"
        assert await metric(server, name, worker="w0") == pytest.approx(2.504)
