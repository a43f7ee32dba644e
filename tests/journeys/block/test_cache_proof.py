"""Real vLLM proves the cache tier: one worker computes, another answers from L2, and whatever is
done to L2 no request fails and no text changes.

Worker B reaches the cache through a proxy that breaks the wire. Each test
brings new prompts.
"""

from __future__ import annotations

import pytest
import redis

from cachetier.wire.envelope import HEADER_BYTES
from tests.support import cachefaults
from tests.support.vllm.fixtures import BLOCK_BYTES, PASSWORD, TieredPair
from tests.support.vllm.router_process import text
from tests.support.vllm.worker import BLOCK_TOKENS, Completion

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

WORDS = 300


@pytest.fixture(scope="module")
def tiered_pair(vllm_tiered: TieredPair) -> TieredPair:
    vllm_tiered.wait_l2_used()
    return vllm_tiered


def raw_client(rig: TieredPair) -> redis.Redis:
    return redis.Redis(port=rig.node.port, password=PASSWORD)


def full_blocks(answer: Completion) -> int:
    return (answer.prompt_tokens - 1) // BLOCK_TOKENS


def test_b_answers_from_what_a_computed(tiered_pair: TieredPair) -> None:
    prompt = text(WORDS)
    cold = tiered_pair.computed_and_stored(prompt)
    assert cold.cached_tokens == 0

    tier, hits = "1:EmberlineL2Tier", "vllm:kv_offload_tiering_chunk_hits_total"
    before, hits_before = tiered_pair.b.cached_from("disk"), tiered_pair.b.metric(hits, tier=tier)
    warm = tiered_pair.b.complete(prompt)

    expected = full_blocks(cold) * BLOCK_TOKENS
    assert warm.text == cold.text
    assert warm.cached_tokens == expected
    assert tiered_pair.b.cached_from("disk") - before == expected
    assert tiered_pair.b.metric(hits, tier=tier) - hits_before == full_blocks(cold)
    assert tiered_pair.b.metric("emberline_l2_client_operations_total", op="load", result="ok") > 0
    assert tiered_pair.node.metric("emberline_l2_hit_blocks_total") >= full_blocks(cold)


def test_l1_answers_when_the_device_has_forgotten(tiered_pair: TieredPair) -> None:
    prompt = text(WORDS)
    cold = tiered_pair.computed_and_stored(prompt)
    tiered_pair.a.forget_device_cache()
    before = tiered_pair.a.cached_from("host")
    again = tiered_pair.a.complete(prompt)
    assert again.text == cold.text
    assert tiered_pair.a.cached_from("host") - before == full_blocks(cold) * BLOCK_TOKENS


def test_changed_values_are_rejected_and_recomputed(tiered_pair: TieredPair) -> None:
    raw = raw_client(tiered_pair)
    before = set(raw.scan_iter(count=1000))
    prompt = text(WORDS)
    cold = tiered_pair.computed_and_stored(prompt)
    for key in set(raw.scan_iter(count=1000)) - before:
        value = bytearray(raw.get(key))
        value[HEADER_BYTES + len(value) // 2] ^= 1
        raw.delete(key)  # our node keeps the first value of a block for ever
        raw.set(key, bytes(value))

    disk = tiered_pair.b.cached_from("disk")
    answer = tiered_pair.b.complete(prompt)

    assert answer.text == cold.text
    assert tiered_pair.b.cached_from("disk") == disk
    name = "emberline_l2_client_operations_total"
    assert tiered_pair.b.metric(name, op="load", result="corrupt") > 0


def test_values_of_another_key_are_rejected(tiered_pair: TieredPair) -> None:
    """Whole, intact, and about something else: the node does not take it."""
    raw = raw_client(tiered_pair)
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
def test_a_broken_wire_costs_no_request(tiered_pair: TieredPair, name: str) -> None:
    prompt = text(WORDS)
    cold = tiered_pair.computed_and_stored(prompt)
    came = tiered_pair.proxy.down_bytes
    tiered_pair.proxy.cut_all()
    tiered_pair.proxy.fault = FAULTS[name]
    try:
        answer = tiered_pair.b.complete(prompt)
    finally:
        tiered_pair.proxy.fault = cachefaults.passing
        tiered_pair.proxy.cut_all()
    assert answer.text == cold.text
    assert tiered_pair.proxy.down_bytes > came, "the fault was never met"
    tiered_pair.wait_l2_used()


def test_open_connections_are_reset_in_the_middle_of_a_load(tiered_pair: TieredPair) -> None:
    prompt = text(WORDS)
    cold = tiered_pair.computed_and_stored(prompt)
    tiered_pair.proxy.resets = True
    tiered_pair.proxy.fault = cachefaults.then(4 * BLOCK_BYTES, tiered_pair.proxy.cut_all)
    try:
        answer = tiered_pair.b.complete(prompt)
    finally:
        tiered_pair.proxy.fault = cachefaults.passing
        tiered_pair.proxy.resets = False
    assert answer.text == cold.text
    assert answer.cached_tokens < full_blocks(cold) * BLOCK_TOKENS, "nothing was cut"
    tiered_pair.wait_l2_used()


def test_l2_is_killed_in_the_middle_of_a_load(tiered_pair: TieredPair) -> None:
    prompt = text(WORDS)
    cold = tiered_pair.computed_and_stored(prompt)
    tiered_pair.proxy.fault = cachefaults.then(4 * BLOCK_BYTES, tiered_pair.node.process.kill)
    try:
        answer = tiered_pair.b.complete(prompt)
    finally:
        tiered_pair.proxy.fault = cachefaults.passing
        tiered_pair.node.process.wait(timeout=60)
        tiered_pair.node.restart()
    assert answer.text == cold.text
    assert answer.cached_tokens < full_blocks(cold) * BLOCK_TOKENS, "killed too late"
    tiered_pair.wait_l2_used()


def test_a_full_l2_costs_no_request(tiered_pair: TieredPair) -> None:
    """It holds less than one prompt; what it lets go is computed."""
    prompts = [text(WORDS), text(WORDS)]
    cold = [tiered_pair.computed_and_stored(prompt).text for prompt in prompts]
    tiered_pair.node.order("/resize?memory=1MiB")
    try:
        assert [tiered_pair.b.complete(prompt).text for prompt in prompts] == cold
        assert tiered_pair.a.complete(text(WORDS)).status == 200
        assert tiered_pair.node.metric("emberline_l2_blocks") <= 1024**2 / BLOCK_BYTES
    finally:
        tiered_pair.node.order("/resize?memory=1GiB")
    tiered_pair.wait_l2_used()


def test_a_password_that_changed_costs_no_request(tiered_pair: TieredPair) -> None:
    prompt = text(WORDS)
    cold = tiered_pair.computed_and_stored(prompt)
    tiered_pair.node.kill()
    tiered_pair.node.password_file.write_text("another password\n")
    tiered_pair.node.restart()
    try:
        assert tiered_pair.b.complete(prompt).text == cold.text
        name = "emberline_l2_client_operations_total"
        assert tiered_pair.b.metric(name, op="lookup", result="error") > 0
    finally:
        tiered_pair.node.kill()
        tiered_pair.node.password_file.write_text(PASSWORD + "\n")
        tiered_pair.node.restart()
    tiered_pair.wait_l2_used()


def test_killed_l2_costs_no_request_and_is_used_again_when_it_is_back(
    tiered_pair: TieredPair,
) -> None:
    prompt = text(WORDS)
    cold = tiered_pair.computed_and_stored(prompt)
    tiered_pair.node.kill()
    try:
        assert tiered_pair.b.complete(prompt).text == cold.text
        # Stores have nowhere to go now; the next request must not feel it.
        for worker in (tiered_pair.a, tiered_pair.b):
            assert worker.complete(text(WORDS)).status == 200
    finally:
        tiered_pair.node.restart()
    tiered_pair.wait_l2_used()


def test_no_secret_is_in_a_log(tiered_pair: TieredPair) -> None:
    for log in (tiered_pair.a.log, tiered_pair.b.log, tiered_pair.node.log):
        assert PASSWORD not in log.read_text()
