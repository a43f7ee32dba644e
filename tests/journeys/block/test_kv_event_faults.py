"""Real vLLM behind the router with `kvaware`, when events are lost, sizes differ and caches forget.

Worker A has blocks of 32 tokens and a cache so small that it evicts; its events pass a proxy that
loses messages. Worker B has blocks of 64 and a LoRA adapter, and reports its event endpoints to the
router. Each test brings new prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.kvproxy import KvProxy
from tests.support.ports import free_port
from tests.support.vllm.fixtures import FILLING_PROMPTS, FILLING_WORDS, Pair
from tests.support.vllm.lora import make_adapter
from tests.support.vllm.router_process import Router, Seat, events, off, text
from tests.support.vllm.worker import Worker
from tests.support.waiting import until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

A_BLOCK, B_BLOCK = 32, 64
B_STEPS_KEPT = 6


@dataclass
class Rig:
    a: Worker
    b: Worker
    proxy: KvProxy
    router: Router

    def fill(self, worker: str = "a") -> None:
        """More than its cache holds, so that all before is evicted."""
        for _ in range(FILLING_PROMPTS):
            self.router.complete(text(FILLING_WORDS), worker, max_tokens=1)


@pytest.fixture(scope="module")
def proxied_pair(vllm_pair: Pair, short_folder: Path) -> Iterator[Rig]:
    folder = short_folder / "faults"
    folder.mkdir()
    reported = events(f"tcp://*:{free_port()}", f"tcp://*:{free_port()}", buffer_steps=B_STEPS_KEPT)
    adapter = f"tuned={make_adapter(folder / 'adapter')}"
    lora = ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", adapter)
    b = Worker(folder, "b", None, {}, *reported, "--block-size", str(B_BLOCK), *lora)
    first = vllm_pair.seats[0]
    with KvProxy(first.kv_events, first.kv_replay) as proxy:
        seats = [Seat("a", first.worker, proxy.events, proxy.replay), Seat("b", b)]
        router = Router(folder, seats, kv={"probe_interval_s": 0})
        try:
            b.wait_ready()
            router.start()
            yield Rig(first.worker, b, proxy, router)
            router.stop()
        finally:
            router.kill()
            b.kill()


def test_two_block_sizes_in_one_fleet_are_each_predicted_to_the_token(proxied_pair: Rig) -> None:
    warm = text(150)
    for worker in "ab":  # a worker's first events tell the size of its blocks
        proxied_pair.router.complete(warm, worker)
        proxied_pair.router.knows(worker, warm, 64)
    prompt = text(250)
    for worker, block in (("a", A_BLOCK), ("b", B_BLOCK)):
        first = proxied_pair.router.complete(prompt, worker)
        assert first["cached_tokens"] == 0
        proxied_pair.router.knows(worker, prompt, 150)
        again = proxied_pair.router.complete(prompt, worker)
        assert off(again) == 0, again
        whole = (again["prompt_tokens"] - 1) // block * block
        assert again["cached_tokens"] == whole
        # Each worker's own block size decides what could have been cached.
        assert again["misses"]["causes"] == {"below_block": again["prompt_tokens"] - whole}
    assert sorted(proxied_pair.router.ask("/index")["kv"]["block_sizes"]) == [A_BLOCK, B_BLOCK]
    held = {worker: proxied_pair.router.holds(worker, {"prompt": prompt})["gpu"] for worker in "ab"}
    assert held["a"] > held["b"] > 0  # the smaller blocks hold more of the same prompt


def test_a_conversation_with_tools_is_predicted_to_the_token_in_each_turn(
    proxied_pair: Rig,
) -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "look",
            "description": text(30),
            "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
        },
    }
    messages = [{"role": "system", "content": text(60)}]
    seen = []
    for turn in range(3):
        messages.append({"role": "user", "content": text(40)})
        body: dict[str, Any] = {"messages": messages, "tools": [tool], "tool_choice": "none"}
        decision = proxied_pair.router.send("/v1/chat/completions", body)
        assert (decision["fallback"], decision["prompt_tokens_estimated"]) == ("", False)
        assert off(decision) == 0, (turn, decision)
        seen.append(decision)
        block = A_BLOCK if decision["chosen"] == "a" else B_BLOCK
        known = decision["prompt_tokens"] // block * block
        messages.append({"role": "assistant", "content": text(20)})
        until(
            lambda body=body, known=known: (
                known - 64 <= proxied_pair.router.explain(body)["predicted_cached_tokens"]
            ),
            what="the turn's blocks",
        )
    assert len({decision["chosen"] for decision in seen}) == 1
    assert [decision["cached_tokens"] > 0 for decision in seen] == [False, True, True]


def test_an_adapters_blocks_are_others_than_the_base_models(proxied_pair: Rig) -> None:
    prompt = text(250)
    base = proxied_pair.router.complete(prompt, "b")
    proxied_pair.router.knows("b", prompt, 192)
    tuned = proxied_pair.router.explain({"model": "tuned", "prompt": prompt})
    assert tuned["kv"]["workers"]["b"]["told"] == 0
    first = proxied_pair.router.complete(prompt, "b", model="tuned")
    assert first["predicted_cached_tokens"] == first["cached_tokens"] == base["cached_tokens"] == 0
    until(
        lambda: proxied_pair.router.explain({"model": "tuned", "prompt": prompt})["kv"]["workers"][
            "b"
        ]["told"],
        what="the adapter's blocks",
    )
    again = proxied_pair.router.complete(prompt, "b", model="tuned")
    assert off(again) == 0, again
    assert again["cached_tokens"] >= 192


def test_twins_are_foreseen_and_found_on_both_workers(proxied_pair: Rig) -> None:
    """The router's own probe, in a second router: it stays out of this one's counts."""
    probing = Router(
        proxied_pair.router.folder, proxied_pair.router.seats, kv={"probe_interval_s": 1}
    )
    try:
        probing.start()

        def verdicts() -> dict[str, Any]:
            return dict(probing.ask("/index")["kv"]["probes"]["workers"])

        def final() -> bool:
            """Return whether both are probed: a probe without its prompt's tokens is repeated."""
            results = [found["result"] for found in verdicts().values()]
            return len(results) == 2 and "no_tokens" not in results

        until(final, 60, "a verdict on each")
        for worker, found in verdicts().items():
            assert found["result"] == "hit", (worker, found)
            assert found["predicted"] == found["reported"] >= 2 * A_BLOCK, (worker, found)
        metric = "emberline_router_kv_probes_total"
        assert probing.metric(metric, worker="a", result="hit") >= 1
        assert probing.metric("emberline_router_requests_total") == 0
    finally:
        probing.kill()


def test_what_was_cached_before_all_that_is_remembered_is_learnt_again(proxied_pair: Rig) -> None:
    """A router which starts when the publisher has forgotten how the cache came to be."""
    prompt = text(250)
    proxied_pair.router.complete(prompt, "b")
    proxied_pair.router.knows("b", prompt, 192)
    for _ in range(B_STEPS_KEPT + 1):
        proxied_pair.router.complete(text(70), "b")
    late = Router(proxied_pair.router.folder, proxied_pair.router.seats, kv={"probe_interval_s": 0})
    try:
        late.start()
        assert late.source("b")["partial"]
        assert late.indexed_tokens("b", prompt) == 0
        assert late.complete(prompt, "b")["cached_tokens"] >= 192
        late.knows("b", prompt, 192)
        assert late.metric("emberline_router_kv_relearned_total") > 0
        assert off(late.complete(prompt, "b")) == 0
    finally:
        late.kill()


def test_lost_events_are_replayed_and_predictions_are_right_again(proxied_pair: Rig) -> None:
    prompt = text(250)
    before = proxied_pair.router.counts("a")
    proxied_pair.proxy.lose_live = True
    lost = proxied_pair.proxy.lost
    proxied_pair.router.complete(prompt, "a")
    proxied_pair.proxy.loses(lost + 1)
    proxied_pair.proxy.lose_live = False
    other = text(100)
    proxied_pair.router.complete(other, "a")  # the first one received again, with a number too high
    proxied_pair.router.knows("a", prompt, 200)
    proxied_pair.router.knows("a", other, 64)
    after = proxied_pair.router.counts("a")
    filled = after.get("gap_filled", 0) + after.get("poll_found", 0)
    assert filled > before.get("gap_filled", 0) + before.get("poll_found", 0)
    again = proxied_pair.router.complete(prompt, "a")
    assert off(again) == 0, again
    assert again["cached_tokens"] > 200


def test_a_lost_eviction_whose_replay_is_lost_too_ends_in_a_new_index(proxied_pair: Rig) -> None:
    """Worst case: no event ever reports the removal of the blocks."""
    prompt = text(250)
    proxied_pair.router.complete(prompt, "a")
    proxied_pair.router.knows("a", prompt, 200)
    before = proxied_pair.router.counts("a")
    proxied_pair.proxy.lose_live = proxied_pair.proxy.deaf = True
    proxied_pair.fill()
    proxied_pair.proxy.lose_live = False
    proxied_pair.router.complete(text(100), "a")
    proxied_pair.router.forgets("a", prompt)  # at the latest when no replay came
    after = proxied_pair.router.counts("a")
    assert after["gap_lost"] > before.get("gap_lost", 0)
    assert proxied_pair.router.source("a")["partial"]
    assert proxied_pair.router.metric("emberline_router_index_sequence_gaps_total", worker="a") > 0
    decision = proxied_pair.router.complete(prompt, "a")
    assert decision["predicted_cached_tokens"] == decision["cached_tokens"] == 0
    proxied_pair.proxy.deaf = False
    until(
        lambda: not proxied_pair.router.source("a")["partial"],
        60,
        "a whole index, by replay from 0",
    )
    assert proxied_pair.router.counts("a")["rebuild"] > 0
    again = proxied_pair.router.complete(prompt, "a")
    assert off(again) == 0, again
    assert again["cached_tokens"] > 200


def test_what_a_evicted_goes_elsewhere_while_prefixaware_still_goes_to_a(proxied_pair: Rig) -> None:
    """Two routers before the same workers. What fills A's cache comes by the one which follows
    events, as another replica's traffic does: the other has no record of it."""
    by_prefix = Router(
        proxied_pair.router.folder, proxied_pair.router.seats, strategy="prefixaware"
    )
    try:
        by_prefix.start()
        prompt = text(300)
        by_prefix.complete(prompt, "a")
        proxied_pair.router.knows("a", prompt, 256)
        assert by_prefix.explain({"prompt": prompt})["chosen"] == "a"
        assert proxied_pair.router.explain({"prompt": prompt})["chosen"] == "a"
        proxied_pair.router.complete(prompt, "b")
        proxied_pair.fill()
        proxied_pair.router.forgets("a", prompt)

        remembers = by_prefix.complete(prompt)
        assert (remembers["chosen"], remembers["reason"]) == ("a", "prefix_hit")
        assert remembers["predicted_cached_tokens"] > 200
        assert remembers["cached_tokens"] == 0

        proxied_pair.fill()  # the mistake has put it there again
        proxied_pair.router.forgets("a", prompt)
        follows = proxied_pair.router.complete(prompt)
        assert (follows["chosen"], follows["reason"]) == ("b", "kv_hit")
        assert off(follows) == 0, follows
        assert follows["cached_tokens"] > 200
    finally:
        by_prefix.kill()
