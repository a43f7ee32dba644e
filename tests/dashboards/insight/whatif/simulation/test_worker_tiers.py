"""Tests of L1 and L2 of the simulated workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachetier.simulation.tier_cache import TierCache
from dashboards.insight.whatif.simulation.hardware import BLOCK_TOKENS, Hardware, TierModel
from dashboards.insight.whatif.simulation.kv_follower import KvFollower
from dashboards.insight.whatif.simulation.worker import NEVER, FleetWorker, Job
from routing.engine.kv.match import match
from routing.engine.policies.kvaware import KvAware

SMALL = Hardware("small", 1.0, 0.001, 0.0, 0.0, 6 * BLOCK_TOKENS, step_tokens=8 * BLOCK_TOKENS)
L1 = TierModel(12 * BLOCK_TOKENS, 1e-4, 0.5)
L2 = TierModel(40 * BLOCK_TOKENS, 5e-4)


def job(first: int, blocks: int = 4) -> Job:
    chain = list(range(first, first + blocks))
    return Job(first, chain, blocks * BLOCK_TOKENS + 100, 1)


def serve(worker: FleetWorker, *jobs: Job, now: float = 0.0) -> float:
    for each in jobs:
        worker.submit(each, now)
    while worker.next_at != NEVER:
        now = worker.next_at
        worker.advance(now)
    return now


def test_what_the_device_evicted_is_loaded_from_l1_and_takes_its_load_time() -> None:
    worker = FleetWorker(replace(SMALL, l1=L1))
    now = serve(worker, job(0))
    now = serve(worker, job(100), now=now)  # displaces the first prompt
    again = job(0)
    serve(worker, again, now=now)
    assert again.cached == 4 * BLOCK_TOKENS
    assert again.l1_tokens == 4 * BLOCK_TOKENS - worker_tokens(again)
    loading = L1.latency_s + L1.load_s * again.l1_tokens
    assert again.first_at - now == pytest.approx(loading + 1.0 + 0.1)  # then one step


def worker_tokens(again: Job) -> int:
    return again.cached - again.l1_tokens - again.l2_tokens


def test_l2_serves_the_other_worker_and_fills_its_l1() -> None:
    hardware = replace(SMALL, l1=L1, l2=L2)
    shared = TierCache(40)
    one, other = (FleetWorker(hardware, shared=shared) for _ in range(2))
    now = serve(one, job(0))
    moved = job(0)
    serve(other, moved, now=now)
    assert (moved.l1_tokens, moved.l2_tokens) == (0, 4 * BLOCK_TOKENS)
    assert other.l1 is not None and 3 in other.l1


def test_steps_go_on_while_a_prompt_is_loaded() -> None:
    worker = FleetWorker(replace(SMALL, l1=L1))
    now = serve(worker, job(0))
    now = serve(worker, job(100), now=now)
    loaded, plain = job(0, 2), job(200, 1)
    loaded.chain = [0, 1]
    serve(worker, loaded, plain, now=now)
    assert loaded.l1_tokens
    assert plain.first_at - now < loaded.first_at - now


def test_the_router_follows_tiers_too() -> None:
    hardware = replace(SMALL, l1=L1, l2=L2)
    policy = KvAware(100, b"s" * 32)
    workers = [FleetWorker(hardware, shared=TierCache(40))]
    follower = KvFollower([policy], workers)
    now = 0.0
    for first in (0, 100, 200, 300, 400):
        now = serve(workers[0], job(first), now=now)
        follower.apply()
    device, l1, l2 = [], [], []
    for first in (0, 100, 200, 300, 400):
        blocks = follower.blocks(job(first).chain, 4 * BLOCK_TOKENS + 1)
        found = match(policy.index, blocks.chains)
        held = found.workers.get("w0")
        device.append(held.gpu if held else 0)
        l1.append(held.l1 if held else 0)
        l2.append(max(found.anywhere, held.tokens if held else 0))
    assert device[-1] == 4 * BLOCK_TOKENS  # the last prompt
    assert l1[2] == 4 * BLOCK_TOKENS  # L1 has room for three prompts
    assert l1[0] == 0
    assert l2 == [4 * BLOCK_TOKENS] * 5
