"""Each cause of a miss, injected against workers with a cache of their own, is attributed to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from routing.engine.kv.match import Match
from routing.engine.kvaware.request_state import RequestPlacement
from routing.engine.misses import history, sums
from routing.engine.misses.ledger import MissLedger
from routing.engine.misses.sketch import PromptChange
from routing.engine.observe.decisions import Decision, MissSplit
from routing.engine.observe.metric_types import Registry
from routing.engine.policies.base import Pick, RequestFacts
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.server import RouterServer
from tests.routing.engine.harness import (
    Client,
    admin,
    ask,
    becomes,
    metric,
    post,
    routed_request,
    router,
    until,
    workers,
)
from tests.routing.engine.test_exchange_engine_death import dead, engine_error
from tests.routing.engine.test_router_access import bearer, keys
from tests.routing.engine.test_server_changes import rewrite
from tests.support.cached_worker import BLOCK, CachedWorker
from tests.support.fake_worker import Conversation, event

Causes = dict[str, int]


def text(seed: int, size: int = 4096) -> str:
    pick = random.Random(seed)
    words = ["alpha", "bravo", "the", "delta", "that", "golf", "hotel", "india", "this", "lima"]
    out = ""
    while len(out) < size:
        out += " ".join(pick.choices(words, k=9)) + f" {pick.randrange(10**6)}.\n"
    return out[:size]


async def send(server: RouterServer, prompt: str, pin: str = "", **more: Any) -> dict[str, Any]:
    lines = {"x_emberline_pin": pin} if pin else {}
    body = {"model": "m", "prompt": prompt, "max_tokens": 1, **more}
    answer = await ask(server, post(body, "/v1/completions", **lines))
    assert answer.status == 200, answer.body
    shown = (await admin(server, f"/decisions/{answer.headers['x-emberline-decision']}")).json
    assert sum(shown["misses"]["causes"].values()) == (
        shown["prompt_tokens"] - shown["cached_tokens"]
    )
    return dict(shown)


def main(shown: dict[str, Any]) -> str:
    causes: Causes = shown["misses"]["causes"]
    return max(causes, key=lambda cause: causes[cause])


async def test_first_seen_then_cached_but_for_the_last_block() -> None:
    async with CachedWorker() as one, router(one) as server:
        shown = await send(server, text(1))
        assert shown["misses"]["causes"] == {"first_seen": 1008, "below_block": 16}
        shown = await send(server, text(1))
        assert shown["misses"]["causes"] == {"below_block": 16}
        assert await metric(server, "emberline_router_computed_prompt_tokens_total") == one.computed


async def test_changed_early_with_offset_and_kind() -> None:
    async with CachedWorker() as one, router(one) as server:
        rules = text(2)
        await send(server, f"{text(3, 600)}\nNow: 2026-11-22 10:00\n{rules}")
        shown = await send(server, f"{text(3, 600)}\nNow: 2026-11-23 11:12\n{rules}")
        assert main(shown) == "changed_timestamp"
        assert abs(shown["misses"]["changed_offset"] - 150) < 16
        assert shown["misses"]["causes"]["changed_timestamp"] > 900
        moved = await send(server, f"A new rule.\n{rules}")
        assert main(moved) == "changed_text"


async def test_other_salt_and_other_model() -> None:
    async with CachedWorker() as one, router(one) as server:
        await send(server, text(4))
        assert main(await send(server, text(4), cache_salt="tenant-b")) == "other_salt"
        assert main(await send(server, text(4), model="adapter")) == "other_model"


async def test_pinned_to_a_worker_that_does_not_hold_it() -> None:
    async with CachedWorker() as one, CachedWorker() as two, router(one, two) as server:
        home = (await send(server, text(5)))["chosen"]
        other = "w1" if home == "w0" else "w0"
        assert main(await send(server, text(5), pin=other)) == "placed_pinned"


async def test_sent_elsewhere_for_load() -> None:
    async with CachedWorker() as one, CachedWorker() as two, router(one, two) as server:
        home = (await send(server, text(6)))["chosen"]
        worker = one if home == "w0" else two
        worker.held_back = asyncio.Event()
        waiting = [
            asyncio.create_task(send(server, text(60 + number, 40_000), pin=home))
            for number in range(3)
        ]
        await worker.until(lambda: len(worker.requests) >= 4)
        shown = await send(server, text(6))
        assert (shown["chosen"] != home, main(shown)) == (True, "placed_load")
        worker.held_back.set()
        await asyncio.gather(*waiting)


async def test_sent_while_the_first_is_still_computed() -> None:
    async with CachedWorker() as one, router(one) as server:
        one.held_back = asyncio.Event()
        first = asyncio.create_task(send(server, text(7)))
        await one.until(lambda: len(one.requests) == 1)
        second = asyncio.create_task(send(server, text(7)))
        await one.until(lambda: len(one.requests) == 2)
        one.held_back.set()
        assert main(await first) == "first_seen"
        assert main(await second) == "in_flight"


async def test_evicted_with_its_age() -> None:
    async with CachedWorker(blocks=100) as one, router(one) as server:
        await send(server, text(8))
        await send(server, text(9, 8000))
        shown = await send(server, text(8))
        assert main(shown) == "evicted_unknown"
        assert 0 <= shown["misses"]["age_s"] < 30


async def test_worker_down_restarted_or_reset() -> None:
    async with CachedWorker() as one, CachedWorker() as two, router(one, two) as server:
        table = server.router.table.workers
        home = (await send(server, text(10)))["chosen"]
        worker = one if home == "w0" else two
        worker.healthy = False
        await until(lambda: not table[home].up, "down")
        assert main(await send(server, text(10))) == "placed_worker_down"
        worker.healthy = True
        await until(lambda: table[home].up, "up")

        await send(server, text(11), pin=home)
        await worker.stop()
        await until(lambda: not table[home].up, "lost")
        worker.cache.clear()
        await worker.start()
        await until(lambda: table[home].up, "up again")
        assert main(await send(server, text(11), pin=home)) == "lost_restart"

        await send(server, text(12), pin=home)
        reset = post({}, "/reset_prefix_cache", x_emberline_pin=home)
        assert (await ask(server, reset)).status == 200
        assert main(await send(server, text(12), pin=home)) == "lost_reset"


async def test_prompts_of_an_engine_that_died() -> None:
    async with CachedWorker() as one, CachedWorker() as two, router(one, two) as server:
        home = (await send(server, text(90)))["chosen"]
        (one if home == "w0" else two).script = dead
        shown = await send(server, text(90))
        assert (shown["chosen"] != home, main(shown)) == (True, "lost_restart")


@pytest.mark.parametrize("known", [False, True], ids=["first prompt", "not its first prompt"])
@pytest.mark.parametrize("ending", ["engine", "connection"])
async def test_answer_cut_off_after_its_first_token(ending: str, known: bool) -> None:
    """It is counted as unreported; its prompt was computed, and is lost with the worker."""

    async def broken(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("a"))
        if ending == "connection":
            talk.writer.write_eof()
            return
        await talk.chunk(b"data: " + json.dumps(engine_error()).encode() + b"\n\n")
        await talk.stream_end()

    async with CachedWorker() as one, CachedWorker() as two, router(one, two) as server:
        if known:
            await send(server, text(91), pin="w0")
        answers, one.script = one.script, broken
        stream = {"model": "m", "prompt": text(92), "stream": True}
        with contextlib.suppress(asyncio.IncompleteReadError):
            await ask(server, post(stream, "/v1/completions", x_emberline_pin="w0"))
        (shown,) = (await admin(server, "/decisions?limit=1")).json["decisions"]
        assert (shown["error"], shown["misses"]) == ("broken_stream", None)
        assert await metric(server, "emberline_router_miss_unreported_requests_total") == 1
        assert (await admin(server, "/misses")).json["unreported_requests"] == 1
        one.script = answers
        if ending == "connection" or not known:  # else repeated at once, its server is still there
            await one.stop()
            await until(lambda: not server.router.table.workers["w0"].up, "lost")
        shown = await send(server, text(92))
        assert (shown["chosen"], main(shown)) == ("w1", "lost_restart")


async def test_scale_down_and_rollout(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with CachedWorker() as one, CachedWorker() as two, router(one, two, path=path) as server:
        await send(server, text(13), pin="w0")
        await send(server, text(14), pin="w0")
        rewrite(path, server, workers=workers(one, two)[1:])
        assert main(await send(server, text(13))) == "lost_scale_down"
        three = [*workers(one, two)[1:], {"id": "w2", "url": one.url}]
        rewrite(path, server, workers=three)
        await until(lambda: len(server.router.table.eligible) == 2, "replaced")
        assert main(await send(server, text(14), pin="w1")) == "lost_rollout"


async def test_replacement_that_comes_first_and_a_drained_worker(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    async with CachedWorker() as one, CachedWorker() as two, router(one, two, path=path) as server:
        both, three = workers(one, two), CachedWorker()
        table = server.router.table
        for number in range(4):
            await send(server, text(70 + number), pin="w0")
        await three.start()
        w2 = {"id": "w2", "url": three.url}
        rewrite(path, server, workers=[*both, w2])
        await until(lambda: len(table.eligible) == 3, "the replacement")
        rewrite(path, server, workers=[both[0] | {"draining": True}, both[1], w2])
        await one.stop()
        await until(lambda: not table.workers["w0"].up, "the drained worker's end")
        assert main(await send(server, text(70), pin="w1")) == "lost_rollout", "while it drains"
        rewrite(path, server, workers=[both[1], w2])
        assert main(await send(server, text(71), pin="w1")) == "lost_rollout"

        await send(server, text(75), pin="w2")
        rewrite(path, server, workers=[both[1], w2 | {"draining": True}])
        await three.stop()
        await until(lambda: not table.workers["w2"].up, "the drained worker's end")
        rewrite(path, server, workers=[both[1]])
        assert main(await send(server, text(75), pin="w1")) == "lost_scale_down"


def test_worker_that_came_long_before_replaces_none() -> None:
    found = history.Replacements()
    left = [history.Tenure("w", number, "w") for number in range(3)]
    found.came(0.0)
    found.left(left[0], history.REPLACED_S + 1)
    found.came(2 * history.REPLACED_S + 2)
    found.left(left[1], 2 * history.REPLACED_S + 3)
    found.left(left[2], 2 * history.REPLACED_S + 4)
    found.came(2 * history.REPLACED_S + 5)
    assert [tenure.ended for tenure in left] == ["", "lost_rollout", "lost_rollout"]


def test_worker_replaces_the_one_that_left_nearest_in_time() -> None:
    found = history.Replacements()
    scaled, first, second = left = [history.Tenure("w", number, "w") for number in range(3)]
    found.left(scaled, 0.0)
    found.came(200.0)
    assert scaled.ended == "lost_rollout", "none has left since"
    found.left(first, 205.0)
    found.left(second, 300.0)
    found.came(310.0)
    assert [one.ended for one in left] == ["lost_scale_down", "lost_rollout", "lost_rollout"]


async def test_not_cacheable_not_hashed_and_not_reported() -> None:
    async with CachedWorker() as one:
        async with router(one) as server:
            await send(server, text(15))
            one.cache.clear()
            assert main(await send(server, text(15), prompt_logprobs=1)) == "not_cacheable"
            one.reports = False
            body = {"model": "m", "prompt": text(16), "max_tokens": 1}
            answer = await ask(server, post(body, "/v1/completions"))
            number = answer.headers["x-emberline-decision"]
            assert (await admin(server, f"/decisions/{number}")).json["misses"] is None
            assert await metric(server, "emberline_router_miss_unreported_requests_total") == 1
            one.reports = True
        async with router(one, strategy="roundrobin") as server:
            assert (
                set((await send(server, text(17)))["misses"]["causes"])
                == {"not_hashed", "below_block"}
                or main(await send(server, text(18))) == "not_hashed"
            )


@pytest.mark.parametrize("hangs_up", [True, False], ids=["client", "worker"])
async def test_answer_cut_off_before_its_usage_is_not_reported(hangs_up: bool) -> None:
    """With its first token: before it, the engine has computed nothing."""

    async def cut(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("first"))
        if hangs_up:
            await talk.gone.wait()
        else:
            talk.cut()

    async with CachedWorker() as one, router(one) as server:
        one.script = cut
        async with await Client.to(server.listen) as client:
            body = {"model": "m", "prompt": text(19), "stream": True}
            await client.send(post(body, "/v1/completions"))
            async with asyncio.timeout(60):
                await client.reader.readuntil(b"first")
                if not hangs_up:
                    await client.reader.read()
        await becomes(server, 1, "emberline_router_miss_unreported_requests_total")
        slots = (await admin(server, "/misses")).json["slots"]  # two, if it changed meanwhile
        assert [(slot["unreported"], slot["causes"]) for slot in slots][-1] == (1, {})


async def test_sums_by_key_prefix_and_time() -> None:
    async with CachedWorker() as one, router(one) as server:
        for number in range(6):
            await send(server, text(20) + text(30 + number, 2000))
        shown = (await admin(server, "/misses")).json
        slots = shown["slots"]  # two, if the time changed meanwhile

        def summed(name: str) -> int:
            return sum(sum(sums.values()) for slot in slots for sums in slot[name].values())

        causes = sum((Counter(slot["causes"]) for slot in slots), Counter())
        assert causes.total() == one.computed
        assert sum(slot["prompt_tokens"] - slot["cached_tokens"] for slot in slots) == one.computed
        assert summed("keys") == summed("prefixes") == one.computed
        assert all(len(slot["prefixes"]) == 1 for slot in slots), "one template"
        assert {k: v for k, v in shown["causes"].items() if v} == causes


async def test_requests_of_the_console_are_counted_apart(tmp_path: Path) -> None:
    computed = "emberline_router_computed_prompt_tokens_total"
    async with CachedWorker() as one:
        async with router(one, api_keys_file=keys(tmp_path, a=False, console=False)) as server:
            for number, key in enumerate(("console", "a", "console")):
                body = {"model": "m", "prompt": text(number), "max_tokens": 1}
                await ask(server, post(body, "/v1/completions", authorization=bearer(key)))
            slots = (await admin(server, "/misses")).json["slots"]
            assert {key for slot in slots for key in slot["keys"]} == {"a"}
            of_console = await metric(server, computed, traffic="console")
            assert 3 * (await metric(server, computed) - of_console) == one.computed
            assert sum(slot["prompt_tokens"] for slot in slots) * 3 == one.computed
            body = {"model": "m", "prompt": text(0), "max_tokens": 1}
            await ask(server, post(body, "/v1/completions", authorization=bearer("console")))
            hits = "emberline_router_cached_prompt_tokens_total"
            assert await metric(server, hits) == await metric(server, hits, traffic="console") > 0


def test_slots_are_bounded_and_cover_a_day() -> None:
    found, decision = sums.MissSums(), Decision("d", 0.0, "s")
    decision.prompt_tokens = 10
    decision.misses = MissSplit({"first_seen": 10})
    for number in range(2 * sums.PAIRS_KEPT):
        decision.time, decision.key_id = 1e9 + number, f"key-{number}"
        found.add(decision, 1)
    shown = found.show(str)
    assert sum(slot["prompt_tokens"] for slot in shown) == 10 * sum(s["requests"] for s in shown)
    assert shown[0]["start"] - shown[-1]["start"] <= sums.HOURS_KEPT * 3600
    assert sum(len(slot["keys"]) for slot in shown) <= sums.PAIRS_KEPT + len(shown)
    assert all(sums.OTHER in slot["keys"] for slot in shown[:5]), "the memory is used up"
    decision.time += 48 * 3600
    found.add(decision, 1)
    (slot,) = found.show(str)
    assert list(slot["keys"]) == [decision.key_id]


def test_history_is_bounded() -> None:
    found = history.PromptHistory(limit=1000)
    for number in range(500):
        found.remember(f"w{number % 3}", range(number * 1000, number * 1000 + 20), number)
        if number % 10 == 0:
            found.end(f"w{number % 3}", "lost_restart", number)
    assert len(found) <= (history.MAX_ENDED + 3) * history.MIN_TENURE_BLOCKS
    assert len(found.ended()) == history.MAX_ENDED
    removed = history.Evictions(keep=100)
    for number in range(1000):
        removed.add("w", 0, [number], float(number))
    assert len(removed) <= 202
    assert removed.find("w", 999) == (0, 999.0)
    assert removed.find("other", 999) is None


def test_history_of_prompts_that_share_little_shrinks() -> None:
    found = history.PromptHistory(limit=100_000, runs=1000)
    found.remember("w", array("Q", range(90_000)), 0.0)
    for number in range(4000):
        found.remember("w", array("Q", [100_000 + number]), 1.0)
    assert found.runs <= 1000 + 90_000 // 64
    assert found.spans(array("Q", [100_000 + 3999])), "the latest is kept"


def test_history_reaches_beyond_the_caches_of_a_fleet() -> None:
    found = history.PromptHistory()
    for number in range(600):  # 9.8 million tokens by blocks of 64
        found.remember("w", array("Q", range(number * 1000, number * 1000 + 256)), 0.0)
    assert found.spans(array("Q", range(256))) == [(256, 1, 0.0)]


async def test_shared_part_that_ends_within_a_block_is_no_eviction() -> None:
    async with CachedWorker() as one, router(one) as server:
        for number in range(4):
            shown = await send(server, text(40, 1300) + text(41 + number, 2000))
            assert set(shown["misses"]["causes"]) <= {"first_seen", "below_block"}
            assert number == 0 or shown["cached_tokens"] >= 304


def _answered(pick: random.Random, moment: float) -> tuple[Any, history.SeenPrompt]:
    """An answered request with random facts about what was known of its prompt."""
    count, block_tokens = pick.randint(1, 20), pick.choice((30.0, 62.5))
    estimated = int(count * block_tokens) + pick.randint(0, 40)
    decision = Decision("d", moment, "prefixaware")
    decision.prompt_tokens = round(estimated * pick.uniform(0.7, 1.3)) + 2
    decision.cached_tokens = pick.randrange(decision.prompt_tokens)
    decision.chosen = pick.choice(("w0", "w1"))
    decision.reason = pick.choice(("prefix_hit", "retry", "pinned"))
    near = decision.cached_tokens + pick.randint(-200, 100)
    decision.predicted = max(pick.choice((0, near)), 0)
    tiers = {f"w{n}": Match(max(near, 0), pick.choice((0, 64)), 0, 0) for n in range(3)}
    decision.candidates = [
        (f"w{n}", max(pick.choice((0, near)), 0), 0, 0.0, pick.random() < 0.8) for n in range(3)
    ]
    ends = sorted(pick.sample(range(1, count + 1), min(count, pick.randint(0, 3))))
    spans = [(end, pick.randrange(16), moment - 9) for end in ends]
    change = PromptChange("text", 10, 900, "text") if pick.random() < 0.1 else None
    # A retry under another strategy chooses a worker that the pick may not know.
    target = RoutingTarget(pick.choice((decision.chosen, decision.chosen, "w9")))
    if target.id == "w9":
        decision.chosen, tiers = "w1", {"w9": tiers["w0"]}
    placed = Pick(target, "", 0, [], 0, pick.choice((None, tiers)), pick.random() < 0.5)
    exchange = routed_request(
        RequestFacts(range(count), estimated, block_tokens, b""),
        decision,
        placing=RequestPlacement(pick=placed) if pick.random() < 0.5 else None,
    )
    return exchange, history.SeenPrompt(spans, change, 4096)


def test_short_cut_for_new_text_attributes_as_the_full_search() -> None:
    ledger = MissLedger(Registry({}))
    for number, worker in enumerate(("w0", "w1", "w2", "w3")):
        ledger.history.remember(worker, [number], 1.0)
    ledger.history.end("w3", "lost_restart", 2.0)
    pick = random.Random(1)
    short = 0
    for _ in range(2000):
        exchange, seen = _answered(pick, 100.0)
        prompt, cached = exchange.decision.prompt_tokens, exchange.decision.cached_tokens
        usable = (prompt - 1) // 16 * 16
        if cached >= usable:
            continue
        short += ledger._is_rest_new(exchange, seen, cached, 16)
        found = ledger._attribute(exchange, seen, cached, usable, 16)
        assert found.show() == ledger._search(exchange, seen, cached, 16).show()
    assert short > 200


async def test_another_worker_holds_it_in_l1_and_is_busy(tmp_path: Path) -> None:
    """Each worker has a device of 1,280 tokens and an L1 of 12,800."""
    path = tmp_path / "router.json"
    fleet = CachedWorker(blocks=800), CachedWorker(blocks=800)
    for worker in fleet:
        labels = f'block_size="{BLOCK}",num_gpu_blocks="80"'
        worker.metrics = f"vllm:cache_config_info{{{labels}}} 1\n"
    async with fleet[0], fleet[1], router(*fleet, path=path, l1_tokens=12_800) as server:
        table = server.router.table
        await until(lambda: all(one.cache_tokens for one in table.workers.values()), "sizes")
        home = (await send(server, text(1)))["chosen"]
        for number in range(2, 5):  # evicts it from the device
            await send(server, text(number), pin=home)
        worker = fleet[int(home[1:])]
        assert (await send(server, text(1)))["predicted_cached_tokens"] >= 960
        for number in range(5, 8):
            await send(server, text(number), pin=home)
        worker.held_back = asyncio.Event()
        waiting = [
            asyncio.create_task(send(server, text(60 + number, 8000), pin=home))
            for number in range(3)
        ]
        await until(lambda: table.workers[home].own_in_flight == 3, "load")
        shown = await send(server, text(1))
        assert (shown["chosen"] != home, main(shown)) == (True, "placed_load")
        worker.held_back.set()
        await asyncio.gather(*waiting)
        rewrite(path, server, l1_tokens=0)
        assert server.router.policy.sizes()[home] <= 20  # of 64 tokens
