"""Hits in each tier over real requests, and their counters."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.cachenode import CacheNode, Valkey
from tests.support.faultproxy import FaultProxy
from tests.support.simulated import SimulatedWorker
from tests.support.waiting import until

HUNDRED = list(range(1000, 1100))  # 3 full blocks of 32 and 4 tokens
PATIENT = ("--l2-timeout", "60")  # a busy machine does not turn a store into a timeout


def sources(worker: SimulatedWorker) -> dict[str, float]:
    return {
        source: worker.metric("vllm:prompt_tokens_cached_by_source_total", source=source)
        for source in ("device", "host", "disk")
    }


def test_device_hits_are_full_blocks_of_a_common_prefix(start: Any) -> None:
    worker = start()
    assert worker.cached(HUNDRED) == 0
    assert worker.cached(HUNDRED) == 96
    assert worker.cached([*HUNDRED[:70], 1, 2, 3]) == 64
    assert worker.cached([7, *HUNDRED]) == 0
    assert worker.cached(HUNDRED, cache_salt="tenant") == 0
    assert worker.cached(HUNDRED, cache_salt="tenant") == 96
    # All of it cached: the last token is computed all the same, and with it its block.
    assert worker.cached(HUNDRED[:96]) == 64
    prompt = worker.metric("vllm:prompt_tokens_total")
    assert prompt == worker.metric("vllm:prefix_cache_queries_total")
    assert prompt == worker.metric("vllm:prompt_tokens_by_source_total")
    hits = worker.metric("vllm:prefix_cache_hits_total")
    assert hits == 96 + 64 + 96 + 64 == worker.metric("vllm:prompt_tokens_cached_total")
    assert worker.metric("vllm:external_prefix_cache_queries_total") == 0  # no connector
    assert worker.metric("vllm:kv_cache_usage_perc") == 0  # nothing runs


def test_second_turn_hits_the_first_response(start: Any) -> None:
    worker = start()
    messages = [{"role": "user", "content": "Tell me about rivers and stones, please. " * 8}]
    body: dict[str, Any] = {"messages": messages, "max_tokens": 90}
    _, first = worker.post("/v1/chat/completions", body)
    text = first["choices"][0]["message"]["content"]
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "More."}]
    _, second = worker.post("/v1/chat/completions", body)
    computed = first["usage"]["total_tokens"] - 1  # the last token was never fed back
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == computed // 32 * 32
    assert cached > first["usage"]["prompt_tokens"]


def prompt(number: int) -> list[int]:
    return [number] * 320  # 10 blocks, and one more for the answer


def test_device_evicts_the_oldest_blocks_tail_first(start: Any) -> None:
    worker = start("--device-blocks", "24")
    assert [worker.cached(prompt(n)) for n in (1, 2)] == [0, 0]
    # 20 blocks are kept (an eleventh is never full); a third prompt needs 11 of 24.
    assert worker.cached(prompt(3)) == 0
    assert 0 < worker.cached(prompt(1)) < 288
    status, answer = worker.post("/v1/completions", {"prompt": [1] * 1000})
    assert status == 400
    assert "KV blocks" in answer["error"]["message"]


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_l1_serves_blocks_evicted_from_the_device(start: Any, policy: str) -> None:
    # 12 blocks on the device, 40 in L1: 32 tokens x 1000 bytes each.
    flags = ("--device-blocks", "12", "--kv-bytes-per-token", "1000", "--l1-bytes", "1280000")
    worker = start(*flags, "--l1-policy", policy)
    assert [worker.cached(prompt(n)) for n in (1, 2, 3, 1)] == [0, 0, 0, 288]
    assert sources(worker) == {"device": 0, "host": 288, "disk": 0}
    assert worker.metric("vllm:external_prefix_cache_hits_total") == 288
    assert worker.metric("vllm:external_prefix_cache_queries_total") == 4 * 320
    assert worker.metric("vllm:kv_offload_tiering_chunk_hits_total", tier="0:primary") == 9
    # A scan of prompts seen once does not fit into L1: what was used twice goes too, or stays.
    for number in (4, 5, 6, 7, 8):
        assert worker.cached(prompt(number)) == 0
    assert worker.cached(prompt(1)) == (288 if policy == "arc" else 0)


@pytest.fixture(params=["ours", "valkey"])
def l2(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    node: Any = (CacheNode if request.param == "ours" else Valkey)(tmp_path, password="pässword")
    yield node
    node.stop()


def stored(worker: SimulatedWorker) -> float:
    return worker.metric("emberline_l2_client_operations_total", op="store", result="ok")


def test_l2_serves_another_worker_and_promotes(start: Any, l2: Any) -> None:
    flags = (*PATIENT, "--l2-url", l2.url, "--l2-ttl", "60", "--l1-bytes", "64MiB")
    one = start(*flags, password="pässword")
    assert one.cached(HUNDRED) == 0
    until(lambda: stored(one) == 3)
    two = start(*flags, "--device-blocks", "8", password="pässword")
    assert two.cached(HUNDRED) == 96
    assert sources(two) == {"device": 0, "host": 0, "disk": 96}
    assert two.metric("vllm:kv_offload_tiering_chunk_hits_total", tier="1:EmberlineL2Tier") == 3
    two.cached([5] * 250)  # the device forgets, L1 does not
    assert two.cached(HUNDRED) == 96
    assert sources(two)["host"] == 96
    other = start(*flags, "--block-size", "16", password="pässword")
    assert other.cached(HUNDRED) == 0  # unlike workers do not share


def test_dead_l2_is_a_counted_miss(start: Any, tmp_path: Path) -> None:
    node = Valkey(tmp_path)
    worker = start(*PATIENT, "--l2-url", node.url)
    worker.cached(HUNDRED)
    until(lambda: stored(worker) == 3)
    node.stop()
    assert worker.cached([9] * 100) == 0
    assert worker.cached(HUNDRED) == 96  # the device still has it
    operations = "emberline_l2_client_operations_total"
    assert worker.metric(operations, op="load", result="error") > 0


@pytest.mark.parametrize("mode", ["stall", "cut"])
async def test_broken_l2_never_fails_a_request(start: Any, l2: Any, mode: str) -> None:
    loop = asyncio.get_running_loop()
    async with FaultProxy("127.0.0.1", l2.port) as proxy:
        flags = ("--l2-url", f"redis://127.0.0.1:{proxy.port}", "--l2-timeout", "0.05")
        worker = await loop.run_in_executor(None, lambda: start(*flags, password="pässword"))

        seeds = count(1)

        def ask() -> int:
            return int(worker.cached([next(seeds)] * 100))

        # On a busy machine one prompt's chunks may be late for the timeout; another's are not.
        await loop.run_in_executor(None, until, lambda: ask() == 0 and stored(worker) > 0)
        proxy.mode = mode
        for _ in range(6):
            assert await loop.run_in_executor(None, ask) == 0
        broken = await loop.run_in_executor(
            None,
            until,
            lambda: worker.metric("emberline_l2_client_operations_total", result="open"),
        )
        assert broken > 0
        proxy.released.set()


def test_wrong_password_is_a_miss(start: Any, l2: Any) -> None:
    worker = start(*PATIENT, "--l2-url", l2.url, password="wrong")
    assert worker.cached(HUNDRED) == 0
    assert "left alone" in until(worker.log.read_text) or worker.cached([3] * 100) == 0
    assert worker.metric("emberline_l2_client_operations_total", op="load", result="error") > 0
    assert "wrong" not in worker.log.read_text()
