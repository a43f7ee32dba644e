"""What `prefixaware` learns from answers: order of use and the usable share of a worker's cache."""

from __future__ import annotations

import pytest

from routing.engine.fleet.workers import Worker
from routing.engine.policies.base import Fleet, RequestFacts
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.policies.prefixaware import MAX_SHARE, MIN_SHARE, STEP, PrefixAware
from tests.routing.engine.policies.test_ranking import BLOCK, blocks, facts, load, table

CACHE = 1000 * BLOCK
USABLE = int(1000 * MAX_SHARE)


def full_memory() -> tuple[PrefixAware, RoutingTarget]:
    """Return a policy whose memory of a worker is full."""
    policy, worker = PrefixAware(10_000), table(1).eligible[0]
    policy.set_capacity(worker.id, CACHE)
    for number in range(12):
        policy.sent(facts(blocks(number, 100)), worker)
    assert policy.sizes() == {"w0": USABLE}
    return policy, worker


def sent(policy: PrefixAware, worker: RoutingTarget, seed: object, count: int) -> RequestFacts:
    found = facts(blocks(seed, count))
    policy.sent(found, worker)
    return found


def test_a_prompt_is_last_used_when_its_answer_ends() -> None:
    policy, worker = PrefixAware(10), table(1).eligible[0]
    long = sent(policy, worker, "long", 5)
    sent(policy, worker, "short", 5)
    policy.ended(long, worker, 5 * BLOCK, None)
    sent(policy, worker, "next", 5)
    remembered = [chain[0] for _, chain in policy.memory("w0", 100)]
    assert remembered == [blocks("long", 1)[0], blocks("next", 1)[0]]


def test_the_remembered_part_of_a_prompt_is_recorded() -> None:
    policy = PrefixAware(10_000)
    worker, other = table(2).workers.values()
    assert sent(policy, worker, "a", 100).known_tokens == 0
    assert sent(policy, worker, "a", 150).known_tokens == 100 * BLOCK
    assert sent(policy, other, "a", 60).known_tokens == 0
    assert sent(policy, worker, "a", 80).known_tokens == 80 * BLOCK
    assert sent(policy, other, "a", 150).known_tokens == 60 * BLOCK


def test_a_partly_evicted_prefix_counts_as_far_as_it_is_left() -> None:
    policy, worker = full_memory()
    oldest = 12 * 100 - USABLE
    gone, part = divmod(oldest, 100)
    assert sent(policy, worker, gone, 100).known_tokens == (100 - part) * BLOCK


@pytest.mark.parametrize(
    ("prompt", "cached", "share"),
    [
        (100 * BLOCK, 0, MAX_SHARE * (1 - STEP)),
        (100 * BLOCK, 99 * BLOCK, MAX_SHARE),
        (100 * BLOCK, None, MAX_SHARE),  # not reported
        (50 * BLOCK, 49 * BLOCK, MAX_SHARE),  # the estimate was too high
        (200 * BLOCK, 0, MAX_SHARE * (1 - STEP)),
    ],
)
def test_an_evicted_prefix_lowers_the_share_that_is_remembered(
    prompt: int, cached: int | None, share: float
) -> None:
    policy, worker = full_memory()
    policy.ended(sent(policy, worker, 11, 100), worker, prompt, cached)
    assert policy.sizes() == {"w0": int(1000 * share)}


def test_the_share_has_bounds_and_returns() -> None:
    policy, worker = full_memory()
    for _ in range(30):
        policy.ended(sent(policy, worker, 11, 100), worker, 100 * BLOCK, 0)
    assert policy.sizes() == {"w0": int(1000 * MIN_SHARE)}
    for number in range(30):  # cached, and not remembered
        policy.ended(sent(policy, worker, f"new {number}", 100), worker, 100 * BLOCK, 99 * BLOCK)
    assert policy.sizes() == {"w0": USABLE}
    policy.ended(sent(policy, worker, "new 29", 100), worker, 100 * BLOCK, 0)
    policy.forget(worker)
    policy.set_capacity(worker.id, CACHE)
    for number in range(12):
        sent(policy, worker, number, 100)
    assert policy.sizes() == {"w0": USABLE}


def test_a_memory_of_unknown_cache_size_keeps_its_bound() -> None:
    policy, worker = PrefixAware(500), table(1).eligible[0]
    for _ in range(2):
        for number in range(12):
            policy.ended(sent(policy, worker, number, 100), worker, 100 * BLOCK, 0)
    assert policy.sizes() == {"w0": 500}


def test_an_answer_of_a_forgotten_worker_is_not_remembered() -> None:
    policy, worker = full_memory()
    late = sent(policy, worker, 11, 100)
    policy.forget(worker)
    policy.ended(late, worker, 100 * BLOCK, 0)
    assert policy.sizes() == {}


def tiered(count: int) -> tuple[PrefixAware, Fleet, list[Worker]]:
    """Return a policy of workers with 100 blocks on the device and 400 in L1; the first one was
    sent five prompts of 60.
    """
    policy, fleet = PrefixAware(10_000), table(count)
    known = list(fleet.workers.values())
    for worker in known:
        policy.set_capacity(worker.id, 100 * BLOCK, 400 * BLOCK)
    for number in range(5):
        sent(policy, known[0], number, 60)
    return policy, fleet.fleet, known


@pytest.mark.parametrize("count", [2, 20])  # compared in full, and not
def test_what_the_device_evicted_is_found_in_l1(count: int) -> None:
    policy, fleet, known = tiered(count)
    pick = policy.rank(facts(blocks(1, 60), 10), fleet)
    assert (pick.worker.id, pick.cached_tokens, pick.reason) == ("w0", 60 * BLOCK, "prefix_hit")
    assert {item[0]: item[1] for item in pick.candidates}["w0"] == 60 * BLOCK
    assert sent(policy, known[0], 1, 60).known_tokens == 60 * BLOCK
    assert policy.sizes() == {"w0": 300}
    for number in range(10, 16):
        sent(policy, known[0], number, 60)
    forgotten = policy.rank(facts(blocks(0, 60)), fleet)
    assert (forgotten.cached_tokens, policy.sizes()["w0"]) == (0, int(400 * MAX_SHARE))


def test_a_prefix_on_the_device_is_preferred_to_one_in_l1() -> None:
    policy, fleet, known = tiered(2)
    sent(policy, known[1], 1, 60)
    assert policy.rank(facts(blocks(1, 60)), fleet).worker.id == "w1"
    load(known[1], 2000)
    assert policy.rank(facts(blocks(1, 60)), fleet).worker.id == "w0"


def test_a_new_router_gets_what_l1_holds() -> None:
    policy, _, _ = tiered(1)
    assert sum(len(chain) for _, chain in policy.memory("w0", 1000)) == 300


def test_a_worker_without_l1_is_remembered_by_its_device_alone() -> None:
    policy, fleet, known = tiered(2)
    for l1_tokens in (0, 50 * BLOCK):  # none; smaller than the device
        policy.set_capacity("w0", 100 * BLOCK, l1_tokens)
        assert policy.rank(facts(blocks(1, 60)), fleet).cached_tokens == 0
        assert policy.sizes() == {"w0": int(100 * MAX_SHARE)}
    policy.set_capacity("w0", 100 * BLOCK, 400 * BLOCK)
    sent(policy, known[0], 7, 60)
    policy.forget(known[0])
    assert policy.sizes() == {}
