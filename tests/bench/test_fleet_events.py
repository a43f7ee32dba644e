"""Tests of the simulated workers' KV events, their timing, and the resulting index."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from bench.fleet.client import Client
from bench.fleet.events import Publishers
from bench.fleet.lockstep import Lockstep
from bench.fleet.serve import ServedFleet
from cachetier.simulation.block_cache import NOTHING
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import BLOCK_TOKENS, Hardware
from dashboards.insight.whatif.simulation.kv_follower import KvFollower
from dashboards.insight.whatif.simulation.worker import NEVER, FleetWorker, Job
from routing.engine.kv.match import match
from routing.engine.policies.kvaware import KvAware

# Round numbers: a step 1 s, a prompt token 1 ms.
PLAIN = Hardware("plain", 1.0, 0.001, 0.0, 0.0, 20 * BLOCK_TOKENS, step_tokens=4 * BLOCK_TOKENS)


def job(chain: list[int], answer: int = 1) -> Job:
    return Job("j", chain, len(chain) * BLOCK_TOKENS + 100, answer)


def test_a_step_is_reported_only_after_its_end() -> None:
    worker = FleetWorker(PLAIN)
    worker.follow()
    worker.submit(job([1, 2, 3, 4, 5]), 0.0)  # two steps
    assert worker.news == []
    worker.advance(worker.next_at)
    assert worker.news == [(1, NOTHING), (2, 1), (3, 2), (4, 3)]
    worker.news.clear()
    worker.advance(worker.next_at)
    assert worker.news == [(5, 4)]


def test_the_routers_index_equals_what_each_worker_holds() -> None:
    chance = random.Random(1)
    policy = KvAware(100, b"s" * 32)
    workers = [FleetWorker(PLAIN) for _ in range(3)]
    follower = KvFollower([policy], workers)
    prompts = [list(range(base, base + chance.randint(1, 9))) for base in range(0, 3000, 100)]
    now = 0.0
    for _ in range(200):
        worker = chance.choice(workers)
        worker.submit(job(chance.choice(prompts), chance.randint(1, 3 * BLOCK_TOKENS)), now)
        while worker.next_at != NEVER:
            now = worker.next_at
            worker.advance(now)
    follower.apply()
    assert any(worker.cache.evicted for worker in workers)
    for prompt in prompts:
        blocks = follower.blocks(prompt, len(prompt) * BLOCK_TOKENS + 1)
        found = match(policy.index, blocks.chains).workers
        held = [worker.cache.match(prompt) * BLOCK_TOKENS for worker in workers]
        assert [found[f"w{n}"].gpu if f"w{n}" in found else 0 for n in range(3)] == held


class Quick:
    """Publisher with immediate delivery."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def publish(self) -> bool:
        self._client.on_first(0)
        self._client.on_done(0)
        return True

    def close(self) -> None:
        """Like Publishers.close."""


def test_what_comes_through_while_events_are_published_was_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks = [PlannedRequest(0.0, [1], 600, 1, -1), PlannedRequest(50.0, [], 100, 1, -1)]

    async def run() -> int:
        fleet = ServedFleet(PLAIN, [0], asks)
        client = Client(0)

        async def send(number: int, _request: bytes) -> None:
            fleet.arrived(number, fleet.workers[0], cast(Any, Mute()))

        monkeypatch.setattr(client, "send", send)  # no sockets
        lockstep = Lockstep(fleet, client, 1e9, cast(Publishers, Quick(client)))
        await lockstep.run(1)
        return lockstep.held

    assert asyncio.run(run()) == 0


class Mute:
    """Worker connection without a socket."""

    def first(self) -> None:
        """Like Face.first."""

    def done(self, job: Job) -> None:
        """Like Face.done."""
