"""Real vLLM proves the cache tier: one worker computes, another answers from L2, and whatever is
done to L2 no request fails and no text changes.

Two workers and one cache node for the whole file, so the tests run in order and each brings a
prompt nobody has seen. Worker B reaches the cache through a proxy that breaks the wire. The workers
start while the node is away, and are never restarted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from cachetier.vllm_connector.settings import L2Target, kv_transfer_config, model_identity
from cachetier.wire.envelope import HEADER_BYTES
from tests.support import cachefaults
from tests.support.cachefaults import FaultProxy
from tests.support.cachenode import CacheNode
from tests.support.vllm.worker import BLOCK_TOKENS, Completion, Worker, model_path
from tests.support.waiting import until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

PASSWORD = "a-password-nobody-may-read-in-a-log"
L1_BYTES = 384 * 1024 * 1024
_WORDS = ("river", "stone", "cloud", "engine", "paper", "green", "window", "market", "light")


@dataclass
class Rig:
    a: Worker
    b: Worker
    node: CacheNode
    proxy: FaultProxy

    def raw(self) -> redis.Redis:
        return redis.Redis(port=self.node.port, password=PASSWORD)

    def computed_and_stored(self, prompt: str, deadline_s: float = 30.0) -> Completion:
        """A's answer, once every full block of the prompt is in L2."""
        before = self.node.metric("emberline_l2_blocks")
        answer = self.a.complete(prompt)
        blocks = answer.prompt_tokens // BLOCK_TOKENS
        until(
            lambda: self.node.metric("emberline_l2_blocks") >= before + blocks,
            deadline_s,
            "blocks in L2",
        )
        return answer


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("proof")
    node = CacheNode(folder, memory="1GiB", password=PASSWORD)
    node.kill()
    workers: list[Worker] = []
    with FaultProxy(("127.0.0.1", node.port)) as proxy:
        try:
            for name, port in (("a", node.port), ("b", proxy.port)):
                target = L2Target(
                    f"redis://127.0.0.1:{port}", model_identity(str(model_path())), ttl_s=3600
                )
                transfer = kv_transfer_config(L1_BYTES, "lru", target, "cpu")
                secrets = {target.password_env: PASSWORD}
                workers.append(Worker(folder, name, transfer, secrets))
            for worker in workers:
                worker.wait_ready()
            _answers_without_l2(workers[0])
            node.restart()
            rig = Rig(workers[0], workers[1], node, proxy)
            _wait_until_used_again(rig)
            yield rig
        finally:
            for worker in workers:
                worker.stop()
            node.kill()


def _answers_without_l2(worker: Worker) -> None:
    """Absent at the start is a fault like any other."""
    name = "emberline_l2_client_operations_total"
    assert worker.complete(prompt(7)).status == 200
    until(lambda: worker.metric(name, op="store", result="error") > 0, what="stores that failed")


def prompt(seed: int, words: int = 500) -> str:
    """Unlike any other from its first block on."""
    chosen = random.Random(seed)
    return f"Chapter {seed}. " + " ".join(chosen.choice(_WORDS) for _ in range(words))


def full_blocks(answer: Completion) -> int:
    return (answer.prompt_tokens - 1) // BLOCK_TOKENS


def l1_files() -> set[Path]:
    return set(Path("/dev/shm").glob("vllm_offload_*.mmap"))


def test_no_name_of_l1_is_left_while_workers_run(rig: Rig) -> None:
    """So that even SIGKILL, at any moment from here on, gives the memory back."""
    for worker in (rig.a, rig.b):
        assert "Created mmap file" in worker.log.read_text()
    assert not l1_files()


def test_b_answers_from_what_a_computed(rig: Rig) -> None:
    text = prompt(1)
    cold = rig.computed_and_stored(text)
    assert cold.cached_tokens == 0

    tier, hits = "1:EmberlineL2Tier", "vllm:kv_offload_tiering_chunk_hits_total"
    before, hits_before = rig.b.cached_from("disk"), rig.b.metric(hits, tier=tier)
    warm = rig.b.complete(text)

    expected = full_blocks(cold) * BLOCK_TOKENS
    assert warm.text == cold.text
    assert warm.cached_tokens == expected
    assert rig.b.cached_from("disk") - before == expected
    assert rig.b.metric(hits, tier=tier) - hits_before == full_blocks(cold)
    assert rig.b.metric("emberline_l2_client_operations_total", op="load", result="ok") > 0
    assert rig.node.metric("emberline_l2_hit_blocks_total") >= full_blocks(cold)


def test_l1_answers_when_the_device_has_forgotten(rig: Rig) -> None:
    text = prompt(2)
    cold = rig.computed_and_stored(text)
    rig.a.forget_device_cache()
    before = rig.a.cached_from("host")
    again = rig.a.complete(text)
    assert again.text == cold.text
    assert rig.a.cached_from("host") - before == full_blocks(cold) * BLOCK_TOKENS


def test_changed_values_are_rejected_and_recomputed(rig: Rig) -> None:
    raw = rig.raw()
    before = set(raw.scan_iter(count=1000))
    text = prompt(3)
    cold = rig.computed_and_stored(text)
    for key in set(raw.scan_iter(count=1000)) - before:
        value = bytearray(raw.get(key))
        value[HEADER_BYTES + len(value) // 2] ^= 1
        raw.delete(key)  # our node keeps the first value of a block for ever
        raw.set(key, bytes(value))

    disk = rig.b.cached_from("disk")
    answer = rig.b.complete(text)

    assert answer.text == cold.text
    assert rig.b.cached_from("disk") == disk
    name = "emberline_l2_client_operations_total"
    assert rig.b.metric(name, op="load", result="corrupt") > 0


def test_values_of_another_key_are_rejected(rig: Rig) -> None:
    """Whole, intact, and about something else: the node does not take it."""
    raw = rig.raw()
    keys = list(raw.scan_iter(count=1000))[:2]
    other = raw.get(keys[1])
    raw.delete(keys[0])
    with pytest.raises(redis.ResponseError, match="envelope"):
        raw.set(keys[0], other)


FAULTS = {
    "cut in a value": cachefaults.cut_after(2_000_000),
    "truncated value": cachefaults.truncate_after(2_000_000),
    "every byte wrong": cachefaults.flip_after(600),
    "black hole": cachefaults.silent,
    "slow": cachefaults.slow(0.3),
    "garbage": cachefaults.garbage,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_wire_costs_no_request(rig: Rig, name: str) -> None:
    text = prompt(100 + list(FAULTS).index(name))
    cold = rig.computed_and_stored(text)
    came = rig.proxy.down_bytes
    rig.proxy.cut_all()
    rig.proxy.fault = FAULTS[name]
    try:
        answer = rig.b.complete(text)
    finally:
        rig.proxy.fault = cachefaults.passing
        rig.proxy.cut_all()
    assert answer.text == cold.text
    assert rig.proxy.down_bytes > came, "the fault was never met"
    _wait_until_used_again(rig)


def test_open_connections_are_reset_in_the_middle_of_a_load(rig: Rig) -> None:
    text = prompt(8)
    cold = rig.computed_and_stored(text)
    rig.proxy.resets = True
    rig.proxy.fault = cachefaults.then(2_000_000, rig.proxy.cut_all)
    try:
        assert rig.b.complete(text).text == cold.text
    finally:
        rig.proxy.fault = cachefaults.passing
        rig.proxy.resets = False
    _wait_until_used_again(rig)


def test_l2_is_killed_in_the_middle_of_a_load(rig: Rig) -> None:
    text = prompt(9)
    cold = rig.computed_and_stored(text)
    rig.proxy.fault = cachefaults.then(2_000_000, rig.node.process.kill)
    try:
        answer = rig.b.complete(text)
    finally:
        rig.proxy.fault = cachefaults.passing
        rig.node.process.wait(timeout=15)
        rig.node.restart()
    assert answer.text == cold.text
    assert answer.cached_tokens < full_blocks(cold) * BLOCK_TOKENS, "it was killed too late"
    _wait_until_used_again(rig)


def test_a_full_l2_costs_no_request(rig: Rig) -> None:
    """It holds less than one prompt; what it lets go is computed."""
    texts = [prompt(10), prompt(11)]
    cold = [rig.computed_and_stored(text).text for text in texts]
    rig.node.order("/resize?memory=8MiB")
    try:
        assert [rig.b.complete(text).text for text in texts] == cold
        assert rig.a.complete(prompt(12)).status == 200
        assert rig.node.metric("emberline_l2_blocks") <= 8 * 1024**2 / 1_474_560
    finally:
        rig.node.order("/resize?memory=1GiB")
    _wait_until_used_again(rig)


def test_a_password_that_changed_costs_no_request(rig: Rig) -> None:
    text = prompt(13)
    cold = rig.computed_and_stored(text)
    rig.node.kill()
    rig.node.password_file.write_text("another password\n")
    rig.node.restart()
    try:
        assert rig.b.complete(text).text == cold.text
        name = "emberline_l2_client_operations_total"
        assert rig.b.metric(name, op="lookup", result="error") > 0
    finally:
        rig.node.kill()
        rig.node.password_file.write_text(PASSWORD + "\n")
        rig.node.restart()
    _wait_until_used_again(rig)


def _wait_until_used_again(rig: Rig) -> None:
    """The breaker lets one lookup through after its rest: ask until B loads again."""
    seed = iter(range(1000, 2000))

    def used() -> bool:
        text = prompt(rig.proxy.accepted * 10_000 + next(seed), words=80)
        try:
            rig.computed_and_stored(text, deadline_s=3.0)
        except AssertionError:  # A's breaker rests too, and what it computes meanwhile is not kept
            return False
        before = rig.b.cached_from("disk")
        rig.b.complete(text, tokens=1)
        return rig.b.cached_from("disk") > before

    until(used, 120.0, "B using L2 again")


def test_killed_l2_costs_no_request_and_is_used_again_when_it_is_back(rig: Rig) -> None:
    text = prompt(4)
    cold = rig.computed_and_stored(text)
    rig.node.kill()
    try:
        assert rig.b.complete(text).text == cold.text
        # Stores have nowhere to go now; the next request must not feel it.
        for worker in (rig.a, rig.b):
            assert worker.complete(prompt(5)).status == 200
    finally:
        rig.node.restart()
    _wait_until_used_again(rig)


def test_no_secret_is_in_a_log(rig: Rig) -> None:
    for log in (rig.a.log, rig.b.log, rig.node.log):
        assert PASSWORD not in log.read_text()


def test_a_worker_ends_in_good_order_while_l2_is_silent(rig: Rig) -> None:
    """Stores are under way to a black hole when it is told to stop. B is gone after this."""
    rig.proxy.cut_all()
    rig.proxy.fault = cachefaults.silent
    rig.b.complete(prompt(6))
    rig.b.process.terminate()
    rig.b.process.wait(timeout=30)
    text = rig.b.log.read_text()
    assert "Application shutdown complete" in text
    assert "EngineCore encountered a fatal error" not in text
    assert not l1_files()


def test_a_killed_worker_leaves_no_l1_behind(rig: Rig) -> None:
    """Last: A is gone after this."""
    rig.a.kill()
    assert not l1_files()
