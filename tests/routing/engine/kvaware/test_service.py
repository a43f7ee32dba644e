"""kvaware in a running router: known and assumed blocks of its workers, and counters."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from routing.engine.kv.match import Blocks
from routing.engine.kvaware.prediction_accuracy import PredictionAccuracy
from routing.engine.server import RouterServer
from tests.routing.engine.harness import admin, ask, becomes, metric, post, router, until
from tests.routing.engine.kv.builders import engine_hash, stored
from tests.routing.engine.kv.event_worker import BLOCK, KvEventWorker
from tests.support.fake_worker import Conversation, FakeWorker

PROMPT = list(range(1000, 1000 + 6 * BLOCK + 1))
HELD = 6 * BLOCK
RECOVERIES = "emberline_router_kv_recoveries_total"


def kvaware_router(*workers: FakeWorker, **more: Any) -> Any:
    kv = {"probe_interval_s": 0, "wait_s": 60, **more.pop("kv", {})}
    return router(*workers, strategy="kvaware", kv=kv, **more)


async def followed(server: RouterServer, *workers: str) -> None:
    listening = server._kvaware.listening
    assert listening is not None
    await until(lambda: all(listening.subscriber.followed(name) for name in workers), "followed")
    await until(lambda: listening.routing.telling and listening.routing.tokens, "in use")


async def complete(server: RouterServer, prompt: Any = PROMPT, **more: Any) -> Any:
    body = {"model": "m", "prompt": prompt, "max_tokens": 1, **more}
    answer = await ask(server, post(body, "/v1/completions"))
    assert answer.status == 200, answer.body
    number = answer.headers["x-emberline-decision"]
    return (await admin(server, f"/decisions/{number}")).json


async def explain(server: RouterServer, prompt: Any = PROMPT) -> Any:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    return (await admin(server, "/explain", "POST", body=body)).json


async def holds(server: RouterServer, worker: str, tokens: int) -> None:
    def held() -> int:
        """By the index in use now: another policy brings another."""
        listening = server._kvaware.listening
        ranks = listening.subscriber.index.ranks.values() if listening is not None else ()
        return BLOCK * sum(rank.blocks for rank in ranks if rank.worker == worker)

    await until(lambda: held() == tokens, f"{tokens} tokens at {worker}")


# -- /explain


async def test_explain_separates_reported_blocks_from_blocks_in_transit() -> None:
    async with KvEventWorker() as worker, kvaware_router(worker) as server:
        await followed(server, "w0")
        worker.publishes = False
        await complete(server)
        seen = await explain(server)
        assert (seen["kv"]["tokens"], seen["kv"]["fallback"]) == ("exact", "")
        assert (seen["prompt_tokens"], seen["prompt_tokens_estimated"]) == (len(PROMPT), False)
        assert seen["kv"]["workers"]["w0"] == {"index": "whole", "told": 0, "on_their_way": 0}
        worker.publisher.publish(stored(PROMPT, block=BLOCK))
        await holds(server, "w0", HELD)
        seen = await explain(server)
        assert seen["kv"]["workers"]["w0"]["told"] == HELD
        assert seen["predicted_cached_tokens"] == HELD
        assert seen["kv"]["prices_measured"] is False


async def test_prompt_in_flight_before_the_first_event_is_expected() -> None:
    """The worker's metrics tell the size of its blocks."""
    released = asyncio.Event()

    class Busy(KvEventWorker):
        async def _complete(self, talk: Conversation) -> None:
            await released.wait()
            await super()._complete(talk)

    worker = Busy()
    worker.metrics = f'vllm:cache_config_info{{block_size="{BLOCK}"}} 1\n'
    async with worker, kvaware_router(worker) as server:
        await followed(server, "w0")
        await until(lambda: server.router.kv.stated_sizes, "the size of its blocks")
        first = asyncio.create_task(complete(server))
        await until(worker.sent, "the first prompt")
        seen = await explain(server)
        assert seen["kv"]["workers"]["w0"] == {"index": "whole", "told": 0, "on_their_way": HELD}
        again = asyncio.create_task(complete(server))
        await until(lambda: len(worker.sent()) == 2, "the same again")
        released.set()
        await first
        assert (await again)["predicted_cached_tokens"] == HELD


async def test_explain_states_the_completeness_of_an_index() -> None:
    async with KvEventWorker() as one, FakeWorker() as two, kvaware_router(one, two) as server:
        await followed(server, "w0")
        listening = server._kvaware.listening
        assert listening is not None

        async def index(worker: str) -> str:
            return str((await explain(server))["kv"]["workers"][worker]["index"])

        assert (await index("w0"), await index("w1")) == ("whole", "none")
        stream = listening.subscriber._streams_of("w0")[0]
        stream.follower._unsure = True
        assert await index("w0") == "partial"
        assert await metric(server, "emberline_router_kv_index_partial", worker="w0") == 1
        listening.routing.meters["w0"] = PredictionAccuracy(lying=True)
        assert await index("w0") == "not_believed"


async def test_explain_gives_the_reason_and_retry_time_without_blocks() -> None:
    async with FakeWorker() as silent, kvaware_router(silent) as server:
        seen = await explain(server)
        assert (seen["kv"]["fallback"], seen["kv"]["tokens"]) == ("no_events", "estimated")
        assert seen["prompt_tokens_estimated"] is True
    async with KvEventWorker() as worker, kvaware_router(worker) as server:
        await followed(server, "w0")
        words = "a prompt of so many words " * 20  # a worker has to tokenize it
        assert (await explain(server, words))["kv"]["fallback"] == "ask_again"
        listening = server._kvaware.listening
        assert listening is not None
        await until(lambda: listening.routing.explained, "the tokens")
        seen = await explain(server, words)
        assert (seen["kv"]["fallback"], seen["prompt_tokens"]) == ("", 120)
        assert (await explain(server, ["a", "b"]))["kv"]["fallback"] == "several_prompts"
        # Questions about requests are none.
        assert await metric(server, "emberline_router_kv_prompts_total") == 0
        assert await metric(server, "emberline_router_kv_fallbacks_total") == 0


# -- what a worker does not tell by itself


async def test_reset_through_the_router_applies_at_once() -> None:
    """The engine publishes it with its next step, which may be much later."""
    async with KvEventWorker() as worker, kvaware_router(worker) as server:
        await followed(server, "w0")
        await complete(server)
        await holds(server, "w0", HELD)
        worker.resets = False  # while a request holds blocks
        assert (await ask(server, post({}, "/reset_prefix_cache"))).status == 200
        assert await metric(server, RECOVERIES, reason="reset") == 0
        assert server.router.kv is not None
        expected = server.router.kv.policy.pending
        expected.answered(expected.sent("w0", {16: [1]}), 1e12)  # just before the reset
        worker.resets = True
        assert (await ask(server, post({}, "/reset_prefix_cache"))).status == 200
        await holds(server, "w0", 0)
        assert expected.matched({16: [1]}) == {}
        assert await metric(server, RECOVERIES, reason="reset") == 1


@pytest.mark.parametrize("relearn", [True, False])
async def test_blocks_older_than_the_history_are_learnt_from_reported_hits(relearn: bool) -> None:
    async with (
        KvEventWorker(buffer=2) as worker,
        kvaware_router(worker, kv={"relearn": relearn}) as server,
    ):
        await followed(server, "w0")
        await complete(server)
        for number in range(3):  # pushes it out of what can be replayed
            await complete(server, [5000 + 100 * number + n for n in range(BLOCK + 1)])
        await holds(server, "w0", HELD + 3 * BLOCK)
        assert "vllm_xargs" not in worker.sent()[-1]  # nothing is missing
        listening = server._kvaware.listening
        assert listening is not None
        listening.rebuild("w0")  # as after a restart of the router
        await until(lambda: listening.subscriber.partial("w0"), "truncated")
        await holds(server, "w0", 2 * BLOCK)
        longer = [*PROMPT[:-1], *range(2000, 2000 + BLOCK), 1]
        surprise = await complete(server, longer)
        assert surprise["cached_tokens"] == HELD
        value = worker.sent()[-1].get("vllm_xargs")
        stream = listening.subscriber._streams_of("w0")[0]
        if relearn:
            assert value == {"kv_cache_report_mode": "full"}
            await holds(server, "w0", 2 * BLOCK + HELD + BLOCK)
            assert (await explain(server, longer))["kv"]["workers"]["w0"]["told"] == HELD + BLOCK
            await complete(server, longer)
            assert "vllm_xargs" not in worker.sent()[-1]  # all of it is known now
            assert await metric(server, "emberline_router_kv_relearned_total") == 1
        else:
            assert value is None
            await until(lambda: stream.parked == 1, "the new block waits for its parent")
            assert (await explain(server, longer))["kv"]["workers"]["w0"]["told"] == 0


@pytest.mark.parametrize("partial", [True, False])
async def test_index_is_not_rebuilt_for_blocks_missing_from_its_history(partial: bool) -> None:
    """It would forget what was learnt since, and find nothing of what is missing."""
    async with KvEventWorker() as worker, kvaware_router(worker, kv={"relearn": False}) as server:
        await followed(server, "w0")
        worker.publishes = False
        listening = server._kvaware.listening
        assert listening is not None
        follower = listening.subscriber._streams_of("w0")[0].follower
        follower._unsure = partial
        for number in range(6):
            prompt = [7000 + 100 * number + n for n in range(4 * BLOCK + 1)]
            worker.held.update(engine_hash(prompt[: end * BLOCK]) for end in range(1, 5))
            surprise = await complete(server, prompt)
            assert (surprise["predicted_cached_tokens"], surprise["cached_tokens"]) == (0, 64)
        assert listening.routing.meters["w0"].demotions == 1
        assert follower.counts["lost"] == (0 if partial else 1)


async def test_vllm_xargs_of_the_caller_are_kept() -> None:
    async with KvEventWorker() as worker, kvaware_router(worker) as server:
        await followed(server, "w0")
        listening = server._kvaware.listening
        assert listening is not None
        listening.subscriber._streams_of("w0")[0].follower._unsure = True
        await complete(server, vllm_xargs={"a": 1})
        assert worker.sent()[-1]["vllm_xargs"] == {"a": 1}


# -- counting


async def test_counters_survive_worker_and_strategy_changes(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    async with (
        KvEventWorker() as one,
        KvEventWorker() as two,
        kvaware_router(one, two, path=path) as server,
    ):
        await followed(server, "w0", "w1")
        await complete(server)
        data = json.loads(path.read_text())
        assert await metric(server, RECOVERIES, reason="connected") == 2
        assert await metric(server, "emberline_router_kv_prompts_total", outcome="ids") == 1

        async def become(**changes: Any) -> None:
            path.write_text(json.dumps({**data, **changes}))
            server.reload(True)

        await become(workers=data["workers"][:1])
        assert await metric(server, RECOVERIES, reason="connected") == 2
        two.publisher.stop()
        await become()  # the other one back, in vain
        one.publisher.restart()
        await becomes(server, 3, RECOVERIES, reason="connected")
        await become(strategy="prefixaware")
        assert await metric(server, RECOVERIES, reason="connected") == 3
        assert await metric(server, "emberline_router_kv_prompts_total", outcome="ids") == 1
        await become(workers=data["workers"][:1])
        await becomes(server, 4, RECOVERIES, reason="connected")


async def test_estimates_use_the_block_size_of_the_worker() -> None:
    """Small blocks hold more of a prompt than large ones: a guess must not promise as small ones
    would where blocks are large."""
    async with KvEventWorker() as one, KvEventWorker() as two, kvaware_router(one, two) as server:
        await followed(server, "w0", "w1")
        one.publisher.publish(stored(list(range(200)), block=BLOCK))
        two.publisher.publish(stored(list(range(200)), block=64))
        listening = server._kvaware.listening
        assert listening is not None
        index = listening.subscriber.index
        await until(lambda: index.block_sizes() == {BLOCK, 64}, "both sizes")
        routing = listening.routing
        blocks = Blocks({BLOCK: [1, 2, 3, 4, 5, 6], 64: [7]})
        assert set(routing._cut_as_there("w0", blocks)) == {BLOCK}
        assert set(routing._cut_as_there("w1", blocks)) == {64}


async def test_adapter_never_counts_as_its_base_model(tmp_path: Path) -> None:
    """Its name comes with the workers' next list of models; requests for it may come before."""
    path = tmp_path / "router.json"
    async with KvEventWorker() as worker, kvaware_router(worker, path=path) as server:
        await followed(server, "w0")
        await complete(server)
        await holds(server, "w0", HELD)

        async def known_of(model: str) -> int:
            body = json.dumps({"model": model, "prompt": PROMPT}).encode()
            seen = (await admin(server, "/explain", "POST", body=body)).json
            return int(seen["kv"]["workers"]["w0"]["told"])

        assert (await known_of("m"), await known_of("loaded-now")) == (HELD, 0)
        worker.publisher.publish(stored(PROMPT, block=BLOCK, lora="loaded-now"))
        await holds(server, "w0", 2 * HELD)
        assert await known_of("loaded-now") == HELD
        data = json.loads(path.read_text())
        for strategy in ("prefixaware", "kvaware"):
            path.write_text(json.dumps({**data, "strategy": strategy}))
            server.reload(True)
        await followed(server, "w0")  # by a new policy, which needs the models at once
        await holds(server, "w0", 2 * HELD)
        assert (await known_of("m"), await known_of("loaded-later")) == (HELD, 0)
