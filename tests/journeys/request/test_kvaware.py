"""Real vLLM behind the router with `kvaware`: predicted tokens equal reported ones.

The router has the model's own tokenizer. Each test brings new prompts.
"""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.vllm.fixtures import Pair
from tests.support.vllm.router_process import Router, main_cause, text
from tests.support.vllm.token_accounting import (
    CHAT,
    COMPLETE,
    Counted,
    chat,
    complete,
    every_kind,
    hang_up,
    idle,
    joined,
    send,
    stream_of,
)
from tests.support.vllm.worker import BLOCK_TOKENS
from tests.support.waiting import until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def router(vllm_pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    folder = tmp_path_factory.mktemp("kv")
    found = Router(folder, vllm_pair.seats, kv={"probe_interval_s": 0})
    try:
        found.start()
        yield found
        found.stop()
    finally:
        found.kill()


def test_repeated_prompt_is_a_kv_hit_with_the_reported_tokens(router: Router) -> None:
    prompt = text(250)
    first = router.complete(prompt)
    assert first["reason"] == "fallback_no_match"
    assert first["cached_tokens"] == 0
    again = router.complete(prompt)
    assert again["reason"] == "kv_hit"
    assert again["chosen"] == first["chosen"]
    assert again["predicted_cached_tokens"] == again["cached_tokens"] > 200
    for line in (
        "Worker registered",
        f"Routing request to {again['chosen']} found by kvaware router",
        "Matched instance None",
    ):
        until(lambda line=line: line in router.log(), what=line)  # written twice a second


def _chat(*turns: str, **more: Any) -> dict[str, Any]:
    roles = itertools.cycle(("user", "assistant"))
    system = more.pop("system", "")
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
    return {"messages": messages, **more}


def mixed(number: int) -> tuple[str, dict[str, Any]]:
    """One of many kinds of request, from a small set in which prefixes repeat."""
    chosen = random.Random(number)
    seed = chosen.randrange(6)
    kind = number % 6
    tool = {
        "type": "function",
        "function": {"name": "look", "description": text(20, 3), "parameters": {"type": "object"}},
    }
    if kind == 0:
        return "/v1/completions", {"prompt": text(chosen.randrange(20, 200), seed)}
    if kind == 1:
        ids = [random.Random(seed + n).randrange(1000, 9000) for n in range(chosen.randrange(200))]
        return "/v1/completions", {"prompt": ids or [1000]}
    chat = "/v1/chat/completions"
    if kind == 2:
        return chat, _chat(text(60, seed), system=text(90, 1))
    if kind == 3:
        turns = [text(40, seed), text(30, seed + 1), text(25, seed + 2)]
        return chat, _chat(*turns[: chosen.choice((1, 3))], system="Be brief. Déjà vu 你好.")
    if kind == 4:
        return chat, _chat(text(50, seed), tools=[tool], tool_choice="none")
    return "/v1/completions", {"prompt": text(120, seed), "cache_salt": f"s{seed % 2}"}


def agent_requests() -> dict[str, tuple[str, dict[str, Any]]]:
    """Requests of coding agents: tools, tool results and thinking, on both vendors' paths."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    system = text(150)
    anthropic = {
        "system": system,
        "tool_choice": {"type": "none"},  # a choice needs a parser of the model's calls
        "tools": [{"name": "look", "description": "Look at a file.", "input_schema": schema}],
        "messages": [
            {"role": "user", "content": "What is in a.py?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I should look.", "signature": "x"},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"path": "a.py"}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": text(80)}],
            },
        ],
    }
    responses = {
        "instructions": system,
        "max_output_tokens": 2,
        "tools": [{"type": "function", "name": "look", "parameters": schema}],
        "input": [
            {"role": "user", "content": "What is in a.py?"},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": text(80)},
        ],
    }
    return {"messages": ("/v1/messages", anthropic), "responses": ("/v1/responses", responses)}


@pytest.mark.parametrize("kind", ["messages", "responses"])
def test_requests_of_agents_are_placed_by_events(router: Router, kind: str) -> None:
    path, body = agent_requests()[kind]
    before = router.metric("emberline_router_kv_prompts_total", outcome="rendered")
    first = router.send(path, body)
    assert first["fallback"] == "", "its tokens are known"
    again = router.send(path, body)
    assert (again["reason"], again["chosen"]) == ("kv_hit", first["chosen"])
    assert again["predicted_cached_tokens"] > 200
    if again["cached_tokens"] is not None:  # Anthropic's usage may omit it
        assert abs(again["predicted_cached_tokens"] - again["cached_tokens"]) <= BLOCK_TOKENS
    assert router.metric("emberline_router_kv_prompts_total", outcome="rendered") == before + 2


def test_predicted_tokens_equal_reported_ones_within_a_block_on_200_requests(
    router: Router,
) -> None:
    def off(decisions: list[dict[str, Any]]) -> list[tuple[int, int]]:
        assert {decision["fallback"] for decision in decisions} == {""}
        pairs = [(d["predicted_cached_tokens"], d["cached_tokens"]) for d in decisions]
        return [(predicted, was) for predicted, was in pairs if abs(predicted - was) > BLOCK_TOKENS]

    one_by_one = []
    for number in range(100):
        decision = router.send(*mixed(number))
        one_by_one.append(decision)
        # vLLM publishes events from a thread of its own, in order: once those of this prompt have
        # come, so have those of the request.
        marker = text(BLOCK_TOKENS + 8)
        router.complete(marker, decision["chosen"])
        router.knows(decision["chosen"], marker, BLOCK_TOKENS)
    assert off(one_by_one) == []
    assert sum(d["cached_tokens"] for d in one_by_one) > 0
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda n: router.send(*mixed(n)), range(100, 200)))
    # Two of one new prompt at the same moment are computed both, and a block may be evicted
    # between the choice and the step: neither is the index's error.
    assert len(off(together)) <= 40, off(together)


def test_prefix_cache_reset_is_detected(router: Router) -> None:
    prompt = text(200)
    home = router.complete(prompt)["chosen"]
    router.knows(home, prompt, 160)
    router.seats["ab".index(home)].worker.forget_device_cache()
    # vLLM publishes it with its next step.
    router.send("/v1/completions", {"prompt": text(40)}, pin=home)
    body = {"model": "m", "prompt": prompt}
    until(lambda: router.explain(body)["predicted_cached_tokens"] == 0, what="the reset")


def test_restarted_router_rebuilds_its_index_by_replay(router: Router) -> None:
    prompt = text(200)
    home = router.complete(prompt)["chosen"]
    router.knows(home, prompt, 160)
    router.stop(signal.SIGKILL)
    router.start()
    decision = router.complete(prompt)
    assert (decision["reason"], decision["chosen"]) == ("kv_hit", home)
    assert decision["predicted_cached_tokens"] == decision["cached_tokens"]


def test_two_routers_have_equal_indexes(router: Router) -> None:
    prompt = text(200)
    home = router.complete(prompt)["chosen"]
    second = Router(router.folder, router.seats, kv=router.kv)
    try:
        second.start()
        assert second.complete(prompt)["chosen"] == home
    finally:
        second.stop()


@pytest.fixture(scope="module")
def metered(router: Router) -> Iterator[Router]:
    """A router with keys in front of the same workers."""
    keys = ("a", "b", "c")
    found = Router(router.folder, router.seats, kv={"probe_interval_s": 0}, keys=keys)
    try:
        found.start()
        yield found
        found.stop()
    finally:
        found.kill()


@pytest.mark.parametrize("keyed", [True, False])
def test_every_token_is_counted_for_its_key(router: Router, metered: Router, keyed: bool) -> None:
    """The sums by key are the engines' own totals, however an answer is read."""
    front, keys = (metered, metered.keys) if keyed else (router, ("",))
    idle(front.seats)
    counted = Counted(front)
    wanted = every_kind()
    for number, (path, body) in enumerate(wanted):
        answer = send(front, path, body, keys[number % len(keys)])
        assert answer.status_code == 200, (path, body, answer.text)
        include_usage = (body.get("stream_options") or {}).get("include_usage")
        if body.get("stream") and path in (CHAT, COMPLETE, "/invocations"):
            assert (b'"usage"' in answer.content) == bool(include_usage), (path, body)
    counted.wait_ended(len(wanted))
    assert counted.sums("prompt_tokens", "completion_tokens") == counted.engines()
    assert counted.sums("unreported") == (0,)
    assert set(counted.keys()) == set(keys)


def test_aborted_response_counts_the_engine_work(metered: Router) -> None:
    idle(metered.seats)
    counted = Counted(metered)
    long = chat(stream=True, max_tokens=400, ignore_eos=True)
    hang_up(metered, *long, events=20, key="a")
    hang_up(metered, *complete(stream=True, max_tokens=400, ignore_eos=True), events=20, key="b")
    counted.wait_ended(2)
    idle(metered.seats)
    prompt, completion = counted.engines()
    found = counted.sums("prompt_tokens", "completion_tokens", "unreported")
    print("aborted: router", found, "engines", (prompt, completion), counted.keys())
    assert found[2] == 2
    assert 0.7 * prompt < found[0] < 1.5 * prompt
    assert 30 <= found[1] <= completion + 2


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize("more", [{}, {"n": 2}, {"logprobs": 1}])
def test_stream_equals_that_of_the_engine(
    metered: Router, router: Router, path: str, more: dict[str, Any]
) -> None:
    """From the first answer after the router's start on, however vLLM cuts it into events.

    It puts tokens that its server had no time to send into one event. That no byte is changed is
    shown with answers that are given: tests/routing/engine/test_token_ledger.py. Several attempts,
    as a seed gives the same tokens only while logits round alike.
    """
    body = chat()[1] if path == CHAT else complete()[1]
    if path == CHAT and "logprobs" in more:
        more = {"logprobs": True, "top_logprobs": 2}
    body = {**body, "stream": True, "seed": 7, **more}
    for seat in metered.seats:
        for _ in range(10):
            alone = joined(stream_of(seat.worker.url, path, body))
            through = joined(stream_of(f"http://127.0.0.1:{router.port}", path, body))
            if through == alone:
                break
        assert through == alone


def test_keys_do_not_share_cached_prompts(metered: Router) -> None:
    """Neither by the engine's word nor where the router sends it; its own prompts it finds."""
    prompt = text(250)

    def cached(key: str, **more: Any) -> int:
        usage = send(metered, COMPLETE, {"prompt": prompt, "max_tokens": 2, **more}, key).json()
        return int((usage["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0)

    assert cached("a") == 0
    assert cached("b") == 0
    assert cached("a") > 200
    assert cached("b", cache_salt="mine") == 0, "a salt of its own divides it further"
    last = metered.ask("/decisions?limit=2")["decisions"][1]
    assert last["reason"] == "kv_hit"
    assert last["predicted_cached_tokens"] == last["cached_tokens"] > 200


def test_killed_worker_is_forgotten_and_indexed_again(router: Router) -> None:
    prompt, lost = text(200), text(200)
    home = router.complete(prompt)["chosen"]
    router.complete(lost, home)
    router.knows(home, prompt, 160)
    router.knows(home, lost, 160)
    old = router.seats["ab".index(home)].worker
    old.kill()
    body = {"model": "m", "prompt": prompt}
    until(lambda: router.explain(body)["predicted_cached_tokens"] == 0, what="forgotten")
    assert router.complete(prompt)["chosen"] != home
    old.restart()
    old.wait_ready()
    until(router.ready, 120, "the new process followed")
    fresh = text(200)
    first = router.send("/v1/completions", {"prompt": fresh}, pin=home)
    assert first["cached_tokens"] == 0
    router.knows(home, fresh, 160)
    again = router.complete(fresh)
    assert (again["reason"], again["chosen"]) == ("kv_hit", home)
    assert again["predicted_cached_tokens"] == again["cached_tokens"]
    misses = router.complete(lost, home)["misses"]  # only the killed process had computed it
    assert main_cause(misses) == "lost_restart", misses
    assert misses["age_s"] > 0
