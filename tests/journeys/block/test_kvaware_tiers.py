"""Real vLLM with L1 and L2 behind the router with `kvaware`: what left the device is still known.

Two workers which share one L2, with device caches so small that they evict. Each test brings
prompts nobody has seen.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cachetier.vllm_connector.settings import L2Target, kv_transfer_config, model_identity
from tests.support.cachenode import CacheNode
from tests.support.vllm.router_process import Router, Seat, events, off, text
from tests.support.vllm.worker import BLOCK_TOKENS, Worker, model_path
from tests.support.waiting import until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

GPU_BLOCKS = 48
L1_BYTES = 384 * 1024 * 1024  # some 250 blocks


@dataclass
class Rig:
    a: Worker
    b: Worker
    node: CacheNode
    router: Router

    def fill(self, worker: str = "a") -> None:
        """More than its device holds, and less than L1 does."""
        for _ in range(6):
            self.router.complete(text(280), worker, max_tokens=1)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("tiers")
    node = CacheNode(folder, memory="1GiB", password="a-password")
    target = L2Target(f"redis://127.0.0.1:{node.port}", model_identity(str(model_path())))
    transfer = kv_transfer_config(L1_BYTES, "lru", target, "cpu")
    small = ("--num-gpu-blocks-override", str(GPU_BLOCKS), "--max-model-len", "1024")
    workers, seats = [], []
    try:
        for name in "ab":
            told = events("ipc://kv.sock", "ipc://replay.sock")
            one = Worker(folder, name, transfer, {target.password_env: "a-password"}, *small, *told)
            place = f"ipc://{folder}/{name}"
            workers.append(one)
            seats.append(Seat(name, one, f"{place}/kv.sock", f"{place}/replay.sock"))
        for one in workers:
            one.wait_ready()
        router = Router(folder, seats, kv={"probe_interval_s": 0})
        router.start()
        yield Rig(*workers, node, router)
        router.kill()
    finally:
        for one in workers:
            one.kill()
        node.kill()
        shutil.rmtree(folder, ignore_errors=True)


def test_what_left_the_device_is_predicted_from_l1(rig: Rig) -> None:
    prompt = text(250)
    rig.router.complete(prompt, "a")
    rig.router.knows("a", prompt, 224)
    rig.fill()
    body = {"prompt": prompt}
    until(lambda: rig.router.holds("a", body)["gpu"] == 0, what="eviction from the device")
    held = rig.router.holds("a", body)
    assert held["l1"] >= 224
    before = rig.a.cached_from("host")
    decision = rig.router.complete(prompt)
    assert (decision["chosen"], decision["reason"]) == ("a", "kv_hit")
    assert off(decision) == 0, decision
    assert decision["cached_tokens"] >= 224
    assert rig.a.cached_from("host") - before == held["l1"]
    tiers = rig.router.ask("/index")["kv"]["tiers"]
    assert tiers["a"]["l1"] > tiers["a"]["gpu"] > 0


def test_what_one_worker_put_into_l2_is_a_hint_for_the_other(rig: Rig) -> None:
    prompt = text(250)
    rig.router.complete(prompt, "a")
    body = {"prompt": prompt}
    until(lambda: rig.router.holds("b", body)["l2"] >= 224, what="the hint of L2")
    before = rig.b.cached_from("disk")
    decision = rig.router.complete(prompt, "b")
    assert abs(off(decision)) <= BLOCK_TOKENS, decision
    assert decision["cached_tokens"] >= 192
    assert rig.b.cached_from("disk") > before


def test_a_hint_which_was_wrong_is_taken_back_and_condemns_nobody(rig: Rig) -> None:
    wrong = []
    for _ in range(6):
        prompt = text(120)
        rig.router.complete(prompt, "a")
        until(lambda p=prompt: rig.router.holds("b", {"prompt": p})["l2"] >= 96, what="the hint")
        wrong.append(prompt)
    rig.node.stop()  # whatever it held is gone, and nobody tells
    for prompt in wrong:
        decision = rig.router.complete(prompt, "b")
        assert decision["predicted_cached_tokens"] >= 96
        assert decision["cached_tokens"] == 0
    kv = rig.router.ask("/index")["kv"]
    assert kv["honesty"]["b"]["believed"]
    assert kv["honesty"]["b"]["demotions"] == 0
    assert kv["denied_blocks"] >= 6 * 3
