"""Complaints of other routers' users about placement, one test each."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from routing.engine.policies import base
from routing.engine.policies.base import Fleet
from routing.engine.policies.prefixaware import PrefixAware
from routing.engine.policies.session import SessionPolicy
from tests.routing.engine.harness import Client, ask, chat, post, router, until
from tests.routing.engine.policies.test_base import Play, facts, targets
from tests.support.fake_worker import Conversation, FakeWorker

PREFIX = "a long and well known beginning " * 40


# -- 2, 17: replicas


async def test_independent_routers_agree(tmp_path: Path) -> None:
    """vllm-project/aibrix#917: each gateway replica learned its own prefixes, so the same prompt
    was computed once for each replica."""
    (tmp_path / "hash.key").write_bytes(b"k" * 32)
    path = tmp_path / "r.json"
    async with FakeWorker() as a, FakeWorker() as b, FakeWorker() as c, FakeWorker() as d:
        shared = {"hash_key_file": "hash.key"}
        homes: list[list[str]] = []
        for _ in range(3):
            async with router(a, b, c, d, path=path, **shared) as server:
                answers = [await ask(server, post(chat(f"{n} {PREFIX}"))) for n in range(12)]
                homes.append([answer.headers["x-emberline-worker"] for answer in answers])
        assert homes[0] == homes[1] == homes[2]
        assert len(set(homes[0])) > 1


async def test_second_router_takes_over_without_shared_state() -> None:
    """vllm-project/production-stack#9: state in one router made it the single point where the
    service degrades."""
    async with FakeWorker() as a, FakeWorker() as b:
        async with router(a, b) as second:
            async with router(a, b) as first:
                assert (await ask(first, post(chat(PREFIX)))).status == 200
            answers = [await ask(second, post(chat(f"{PREFIX}{n}"))) for n in range(5)]
            assert {answer.status for answer in answers} == {200}
            homes = {answer.headers["x-emberline-worker"] for answer in answers}
            assert len(homes) == 1, "it found the place where the prefix is kept by itself"


# -- 9 to 13: where requests go


def test_equal_scores_alternate_and_cached_prompts_follow_their_cache() -> None:
    """ai-dynamo/dynamo#3581, #5565: with equal scores the pick was random, and blocks which were
    cached were not seen."""
    play = Play(PrefixAware(1000), targets(8))
    homes = {play.send(facts([n * 100])).worker.id for n in range(64)}
    assert len(homes) == 8, "all idle workers are used"
    first = [play.send(facts([n * 100 + 50_000])).worker.id for n in range(20)]
    again = [play.send(facts([n * 100 + 50_000])).worker.id for n in range(20)]
    assert first == again


@pytest.mark.parametrize("strategy", ["prefixaware", "session"])
async def test_popular_prefix_is_spread_over_workers(strategy: str) -> None:
    """production-stack PR#1035: kvaware piled a popular prefix on one engine while the others
    idled."""
    release = asyncio.Event()

    async def slow(talk: Conversation) -> None:
        await release.wait()
        await talk.json({})

    fakes = [FakeWorker() for _ in range(4)]
    for fake in fakes:
        await fake.start()
        fake.script = slow
    async with router(*fakes, strategy=strategy) as server:
        clients = [await Client.to(server.listen) for _ in range(120)]
        for index, client in enumerate(clients):
            body = chat(PREFIX + f"own words {index} " * 60)
            await client.send(post(body, x_session_id="everybody"))
        await until(lambda: sum(len(fake.requests) for fake in fakes) == 120)
        counts = sorted(len(fake.requests) for fake in fakes)
        assert counts[0] >= 8, counts
        assert counts[-1] <= 60, counts
        release.set()
        for client in clients:
            assert (await client.response()).status == 200
            await client.__aexit__()
    for fake in fakes:
        await fake.stop()


def test_bounded_load_holds_with_hundreds_of_replicas() -> None:
    """kubeai-project/kubeai#447, PR#519: one pod had about 80 requests and no other more than 10;
    bounded load broke down at hundreds of replicas."""
    many = targets(300)
    fleet, policy = Fleet(many), SessionPolicy()
    draw = random.Random(1)
    # A few sessions make most of the requests, and nothing ends.
    for _ in range(3000):
        session = b"s%d" % int(draw.paretovariate(0.7))
        pick: Any = policy.rank(facts(tokens=100, session=session), fleet).worker
        pick.load += 100
        pick.in_flight += 1
    loads = sorted(worker.load for worker in many)
    mean = sum(loads) / len(loads)
    assert loads[-1] <= 2 * mean + 100, (loads[-1], mean)
    assert sum(1 for load in loads if load) > 250


def test_uncached_prompts_go_to_idle_workers() -> None:
    """ai-dynamo/dynamo#7836, sgl-project/sglang PR#14305: two decode workers idled; a rule for
    cache misses fed the busiest worker."""
    many = targets(6)
    play = Play(PrefixAware(10_000), many)
    busy: Any = play.send(facts(list(range(50)))).worker
    busy.load, busy.in_flight = 1_000_000, 30
    used = set()
    for index in range(60):
        pick: Any = play.send(facts([1000 + index], tokens=2000)).worker
        assert pick is not busy
        used.add(pick.id)
        pick.load += 2000
    assert len(used) == 5, "nobody idles"


def test_sessions_return_after_a_load_peak() -> None:
    """PrimeIntellect-ai/prime-rl PR#3255: hashing which did not see load thrashed one engine (its
    hit rate fell from 98 % to 5 %) while others idled."""
    many = targets(4)
    play = Play(SessionPolicy(), many)
    homes = {n: play.send(facts(tokens=10, session=b"s%d" % n)).worker for n in range(40)}
    crowded: Any = homes[0]
    crowded.load = 1_000_000
    for n, home in homes.items():
        pick = play.send(facts(tokens=10, session=b"s%d" % n))
        if home is crowded:
            assert pick.worker is not crowded
            assert pick.reason == base.LEAST_LOADED
        else:
            assert pick.worker is home, "one crowded worker moves nobody else's sessions"
    crowded.load = 0
    assert {n: play.send(facts(tokens=10, session=b"s%d" % n)).worker for n in range(40)} == homes
