"""Real vLLM with L1 and L2 behind the router with `kvaware`: what left the device is still known.

Each test brings new prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.cachenode import CacheNode
from tests.support.vllm.fixtures import FILLING_PROMPTS, FILLING_WORDS, TieredPair
from tests.support.vllm.router_process import Router, main_cause, off, text
from tests.support.vllm.worker import BLOCK_TOKENS, Worker
from tests.support.waiting import until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@dataclass
class Rig:
    a: Worker
    b: Worker
    node: CacheNode
    router: Router

    def fill(self, worker: str = "a") -> None:
        """More than its device holds, and less than L1 does."""
        for _ in range(FILLING_PROMPTS):
            self.router.complete(text(FILLING_WORDS), worker, max_tokens=1)


@pytest.fixture(scope="module")
def tiered_router(
    vllm_tiered: TieredPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    router = Router(tmp_path_factory.mktemp("tiers"), vllm_tiered.seats, kv={"probe_interval_s": 0})
    try:
        router.start()
        vllm_tiered.wait_l2_used()
        yield Rig(vllm_tiered.a, vllm_tiered.b, vllm_tiered.node, router)
    finally:
        router.kill()


def test_what_left_the_device_is_predicted_from_l1(tiered_router: Rig) -> None:
    prompt = text(250)
    tiered_router.router.complete(prompt, "a")
    tiered_router.router.knows("a", prompt, 224)
    tiered_router.fill()
    body = {"prompt": prompt}
    until(
        lambda: tiered_router.router.holds("a", body)["gpu"] == 0, what="eviction from the device"
    )
    held = tiered_router.router.holds("a", body)
    assert held["l1"] >= 224
    before = tiered_router.a.cached_from("host")
    decision = tiered_router.router.complete(prompt)
    assert (decision["chosen"], decision["reason"]) == ("a", "kv_hit")
    assert off(decision) == 0, decision
    assert decision["cached_tokens"] >= 224
    assert tiered_router.a.cached_from("host") - before == held["l1"]
    tiers = tiered_router.router.ask("/index")["kv"]["tiers"]
    assert tiers["a"]["l1"] > tiers["a"]["gpu"] > 0


def test_what_one_worker_put_into_l2_is_a_hint_for_the_other(tiered_router: Rig) -> None:
    prompt = text(250)
    tiered_router.router.complete(prompt, "a")
    body = {"prompt": prompt}
    until(lambda: tiered_router.router.holds("b", body)["l2"] >= 224, what="the hint of L2")
    before = tiered_router.b.cached_from("disk")
    decision = tiered_router.router.complete(prompt, "b")
    assert abs(off(decision)) <= BLOCK_TOKENS, decision
    assert decision["cached_tokens"] >= 192
    assert tiered_router.b.cached_from("disk") > before


def test_a_wrong_hint_is_reverted_without_marking_a_worker(tiered_router: Rig) -> None:
    wrong = []
    for _ in range(6):
        prompt = text(120)
        tiered_router.router.complete(prompt, "a")
        until(
            lambda p=prompt: tiered_router.router.holds("b", {"prompt": p})["l2"] >= 96,
            what="the hint",
        )
        wrong.append(prompt)
    tiered_router.node.stop()  # its content is gone, without an event
    for prompt in wrong:
        decision = tiered_router.router.complete(prompt, "b")
        assert decision["predicted_cached_tokens"] >= 96
        assert decision["cached_tokens"] == 0
        assert main_cause(decision["misses"]) == "evicted_l2", decision["misses"]
    kv = tiered_router.router.ask("/index")["kv"]
    assert kv["honesty"]["b"]["believed"]
    assert kv["honesty"]["b"]["demotions"] == 0
    assert kv["denied_blocks"] >= 6 * 3


def test_what_left_l1_too_is_attributed_to_it_with_its_age(tiered_router: Rig) -> None:
    router, node = tiered_router.router, tiered_router.node
    if node.process.poll() is None:
        node.stop()  # L2 would still hold it
    prompt = text(250)
    first = router.complete(prompt, "a")
    router.knows("a", prompt, 224)
    body = {"prompt": prompt}

    def left_l1() -> bool:
        tiered_router.fill()
        return sum(router.holds("a", body).values()) == 0

    until(left_l1, 240, what="eviction from L1")
    again = router.complete(prompt, "a")
    misses = again["misses"]
    assert main_cause(misses) == "evicted_l1", misses
    assert misses["age_s"] >= 0
    assert first["time"] < misses["evicted_at"] <= again["time"]
