"""Requests that only some workers can serve, workers that are stuck, busy or silent."""

from __future__ import annotations

import asyncio
import posixpath
from typing import Any

import pytest

from routing.engine.fleet.progress import read_steps
from routing.engine.server import RouterServer
from tests.routing.engine.harness import admin, ask, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker

RETRIES = "emberline_router_retries_total"
LONG = "a long and well known beginning " * 60


def models(*names: str, adapters: dict[str, str] | None = None) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [{"id": name, "object": "model"} for name in names]
    listed += [
        {"id": name, "object": "model", "parent": names[0], "root": path}
        for name, path in (adapters or {}).items()
    ]
    return {"object": "list", "data": listed}


class AdapterWorker(FakeWorker):
    """Lists, loads and unloads adapters like vLLM."""

    def __init__(self, *adapters: str) -> None:
        super().__init__()
        self.adapters = dict.fromkeys(adapters, "/static")
        self.refuses = False
        self.script = self._serve_adapters

    async def _answer(self, request: Any, reader: Any, writer: Any) -> None:
        if request.target == "/v1/models":
            listed = models("m", adapters=self.adapters)
            await Conversation(request, writer).json(listed)
            return
        await super()._answer(request, reader, writer)

    async def _serve_adapters(self, talk: Conversation) -> None:
        body = talk.request.json
        if not talk.request.target.startswith("/v1/load") and "lora_name" not in body:
            known = body["model"] in ("m", *self.adapters)
            await talk.json({"model": body["model"]}, 200 if known else 404)
            return
        name = body["lora_name"]
        if self.refuses:
            await talk.json({"error": {"message": "no such file"}}, 500)
        elif talk.request.target == "/v1/load_lora_adapter":
            if name in self.adapters:
                await talk.json({"error": {"message": "has already been loaded"}}, 400)
                return
            self.adapters[name] = body["lora_path"]
            await talk.text(f"Success: LoRA adapter '{name}' added successfully.")
        elif name in self.adapters:
            del self.adapters[name]
            await talk.text(f"Success: LoRA adapter '{name}' removed successfully.")
        else:
            await talk.json({"error": {"message": "cannot be found"}}, 404)


@pytest.mark.parametrize("strategy", ["prefixaware", "kvaware", "roundrobin", "session"])
async def test_only_workers_that_list_the_model_are_eligible(strategy: str) -> None:
    async with AdapterWorker("a") as one, AdapterWorker() as two:
        async with router(one, two, strategy=strategy) as server:
            await until(lambda: server.router.listed_at)
            for index in range(10):
                body = {**chat(f"{index} {LONG}"), "model": "a"}
                assert (await ask(server, post(body))).status == 200
            served = [[r for r in fake.requests if "chat" in r.target] for fake in (one, two)]
            assert [len(requests) for requests in served] == [10, 0]
            nobody = await ask(server, post({**chat("x"), "model": "other"}))
            assert nobody.status == 404, "an unknown model gets the worker's own answer"
            await one.stop()
            await until(lambda: not server.router.table.workers["w0"].up)
            answer = await ask(server, post({**chat("x"), "model": "a"}))
            assert (answer.status, answer.code) == (503, "no_healthy_worker")
            assert "the model 'a'" in answer.json["error"]["message"]


@pytest.mark.parametrize(("paused", "said"), [(True, "paused"), (False, "at the moment")])
async def test_a_paused_endpoint_says_so(paused: bool, said: str) -> None:
    async with router(paused=paused) as server:
        answer = await ask(server, post(chat("x")))
        assert (answer.status, answer.code) == (503, "no_healthy_worker")
        assert said in answer.json["error"]["message"]


async def test_aliases_share_the_prefixes_of_their_model() -> None:
    class Aliased(FakeWorker):
        async def _answer(self, request: Any, reader: Any, writer: Any) -> None:
            if request.target == "/v1/models":
                listed = models("m", "gpt-4o-mini")
                for item in listed["data"]:
                    item["root"] = "/models/m"
                await Conversation(request, writer).json(listed)
                return
            await super()._answer(request, reader, writer)

    async with Aliased() as one, Aliased() as two, router(one, two) as server:
        await until(lambda: server.router.identifier.aliases)
        first = await ask(server, post(chat(LONG)))
        again = await ask(server, post({**chat(LONG), "model": "gpt-4o-mini"}))
        assert again.headers["x-emberline-worker"] == first.headers["x-emberline-worker"]
        found = (await admin(server, "/decisions")).json["decisions"][0]
        assert found["reason"] == "prefix_hit"


async def test_adapter_order_reaches_all_workers_and_those_that_join() -> None:
    order = {"lora_name": "a", "lora_path": "/adapters/a"}
    async with AdapterWorker() as one, AdapterWorker() as two, AdapterWorker() as three:
        await three.stop()
        async with router(one, two, three, ready=2) as server:
            answer = await ask(server, post(order, "/v1/load_lora_adapter"))
            assert answer.status == 200
            assert answer.body.startswith(b"Success: LoRA adapter 'a' added")
            assert answer.headers["content-type"] == "text/plain"
            assert list(one.adapters) == list(two.adapters) == ["a"]
            for _ in range(4):  # at once, without waiting for the next look at the models
                assert (await ask(server, post({**chat("x"), "model": "a"}))).status == 200
            await three.start()
            await until(lambda: list(three.adapters) == ["a"], "the new worker has it")
            answer = await ask(server, post({"lora_name": "a"}, "/v1/unload_lora_adapter"))
            assert answer.status == 200
            assert one.adapters == two.adapters == three.adapters == {}


async def test_router_adopts_adapters_loaded_before_its_start() -> None:
    order = {"lora_name": "a", "lora_path": "/adapters/a"}
    async with AdapterWorker("static") as one, AdapterWorker() as two:
        async with router(one) as first:
            assert (await ask(first, post(order, "/v1/load_lora_adapter"))).status == 200
        await two.stop()
        async with router(one, two, ready=1) as second:
            await two.start()
            await until(lambda: "a" in two.adapters, "the worker that joins has it")
            assert two.adapters["a"] == one.adapters["a"], "spelled alike, so that they share L2"
            assert "static" not in two.adapters, "only what a router has loaded"
            assert (
                await ask(second, post({"lora_name": "a"}, "/v1/unload_lora_adapter"))
            ).status == 200


async def test_unloaded_adapter_does_not_come_back_from_a_worker_that_kept_it() -> None:
    order = {"lora_name": "a", "lora_path": "/adapters/a"}
    async with AdapterWorker() as one, AdapterWorker() as two:
        async with router(one, two) as server, router(one, two) as other:
            assert (await ask(server, post(order, "/v1/load_lora_adapter"))).status == 200
            await learn_all(other)
            two.refuses = True
            answer = await ask(server, post({"lora_name": "a"}, "/v1/unload_lora_adapter"))
            assert (answer.status, answer.code) == (502, "adapter_incomplete")
            for each in (server, other):
                await learn_all(each)
            joining = [each.router.adapters._joining for each in (server, other)]
            await until(lambda: not any(joining), "they have caught up")
            assert (list(one.adapters), list(two.adapters)) == ([], ["a"])


async def learn_all(server: RouterServer) -> None:
    for worker in server.router.table.workers.values():
        await server.router.adapters.learn_models(worker)


async def test_reloaded_adapter_has_another_path_of_the_same_place() -> None:
    """The engine's block hashes contain the path: weights replaced under it must not share KV."""
    order = {"lora_name": "a", "lora_path": "/adapters/a"}
    async with AdapterWorker() as one, AdapterWorker() as two, router(one, two) as server:
        for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/load_lora_adapter"):
            assert (await ask(server, post(order, path))).status == 200
        sent = [
            [r.json["lora_path"] for r in fake.requests if r.target == "/v1/load_lora_adapter"]
            for fake in (one, two)
        ]
        assert sent[0] == sent[1], "workers agree, so that they share L2"
        first, second = sent[0]
        assert first != second
        assert posixpath.normpath(first) == posixpath.normpath(second) == "/adapters/a"
        remote = {"lora_name": "b", "lora_path": "org/adapter"}
        await ask(server, post(remote, "/v1/load_lora_adapter"))
        assert one.requests[-1].json == remote


async def test_adapter_order_says_where_it_failed_and_can_be_repeated() -> None:
    order = {"lora_name": "a", "lora_path": "/adapters/a"}
    async with AdapterWorker() as one, AdapterWorker() as two, router(one, two) as server:
        two.refuses = True
        answer = await ask(server, post(order, "/v1/load_lora_adapter"))
        assert (answer.status, answer.code) == (502, "adapter_incomplete")
        text = answer.json["error"]["message"]
        assert "1 of 2 workers" in text
        assert "w1: 500" in text
        assert "no such file" in text
        two.refuses = False
        server.router.adapters.learn()  # as after the next look at the models
        await until(lambda: list(two.adapters) == ["a"])
        again = await ask(server, post(order, "/v1/load_lora_adapter"))
        assert again.status == 400, "loaded everywhere: vLLM's own answer"
        wrong = await ask(server, post({"lora_path": "x"}, "/v1/load_lora_adapter"))
        assert (wrong.status, wrong.code) == (400, "bad_request")


# -- stored responses


class StoringWorker(FakeWorker):
    """Stores responses like vLLM's /v1/responses."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.stored: list[str] = []
        self.script = self._responses

    async def _responses(self, talk: Conversation) -> None:
        request = talk.request
        if request.method == "POST" and request.target == "/v1/responses":
            before = request.json.get("previous_response_id")
            if before and before not in self.stored:
                await talk.json({"error": {"message": "not found"}}, 404)
                return
            new = f"resp_{self.name}_{len(self.stored)}"
            self.stored.append(new)
            await talk.json({"id": new, "object": "response", "output": []})
            return
        found = request.target.split("/")[3] in self.stored
        await talk.json({"id": request.target} if found else {}, 200 if found else 404)


async def test_stored_response_is_found_by_any_router() -> None:
    async with StoringWorker("a") as one, StoringWorker("b") as two, StoringWorker("c") as three:
        fakes = (one, two, three)
        made = []
        async with router(*fakes, strategy="roundrobin") as first:
            for _ in range(6):
                answer = await ask(first, post({"model": "m", "input": "hi"}, "/v1/responses"))
                made.append(answer.json["id"])
            assert all(fake.stored for fake in fakes)
            made += await continued(first, made)
        async with router(*fakes, strategy="roundrobin") as restarted:
            await continued(restarted, made)
            before = sum(len(fake.requests) for fake in fakes)
            assert (await get(restarted, "resp_unknown")).status == 404
            first_search = sum(len(fake.requests) for fake in fakes) - before
            assert (await get(restarted, "resp_unknown")).status == 404
            again = sum(len(fake.requests) for fake in fakes) - before - first_search
            assert (first_search, again) == (4, 1), "not searched for again at once"


async def get(server: Any, name: str, action: str = "") -> Any:
    method = "POST" if action else "GET"
    line = f"{method} /v1/responses/{name}{action} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
    return await ask(server, line.encode(), method)


async def continued(server: Any, made: list[str]) -> list[str]:
    new = []
    for name in made:
        assert (await get(server, name)).status == 200
        assert (await get(server, name, "/cancel")).status == 200
        body = {"model": "m", "input": "more", "previous_response_id": name}
        answer = await ask(server, post(body, "/v1/responses"))
        assert answer.status == 200, name
        new.append(answer.json["id"])
    return new


# -- busy workers


async def test_busy_worker_is_retried_once_elsewhere() -> None:
    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:

        async def busy(talk: Conversation) -> None:
            await talk.json({"error": {"message": "too many requests"}}, 429)

        one.script = busy
        for _ in range(6):
            assert (await ask(server, post(chat("x")))).status == 200
        retried = await metric(server, RETRIES, reason="worker_busy")
        assert retried == len(one.requests) > 0
        assert server.router.table.workers["w0"].failures == 0, "a busy worker is healthy"
        two.script = busy
        answer = await ask(server, post(chat("x")))
        assert answer.status == 429
        assert answer.json["error"]["message"] == "too many requests"
        found = (await admin(server, "/decisions")).json["decisions"][0]
        assert found["attempts"] == 2


# -- stuck engines

STEPS = 'vllm:iteration_tokens_total_count{{engine="0"}} {}\nvllm:num_requests_running 1\n'


async def test_stuck_engine_is_ejected_and_its_requests_go_elsewhere() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        one.metrics = two.metrics = STEPS.format(7)
        health = {"interval_s": 0.05, "progress_timeout_s": 0.6}
        async with router(one, two, strategy="roundrobin", health=health) as server:
            frozen = asyncio.Event()

            async def hang(talk: Conversation) -> None:
                await frozen.wait()
                await talk.json({})

            one.script = hang
            answers = await asyncio.gather(*(ask(server, post(chat("x"))) for _ in range(8)))
            assert [answer.status for answer in answers] == [200] * 8
            assert {answer.headers["x-emberline-worker"] for answer in answers} == {"w1"}
            assert await metric(server, RETRIES, reason="engine_stuck") == 4
            worker = server.router.table.workers["w0"]
            assert worker.stuck
            assert "no progress for" in worker.last_error
            for _ in range(4):  # no trial reaches it
                assert (await ask(server, post(chat("x")))).headers["x-emberline-worker"] == "w1"
            frozen.set()
            one.script = None
            one.metrics = STEPS.format(8)
            await until(lambda: not worker.stuck and worker.circuit.admits, "it is back")
            await until(lambda: worker.in_flight == 0)
            shown = {
                (await ask(server, post(chat("x")))).headers["x-emberline-worker"] for _ in range(4)
            }
            assert shown == {"w0", "w1"}


async def test_engine_that_computes_a_long_prompt_is_not_stuck() -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        one.metrics = two.metrics = STEPS.format(0)
        health = {"interval_s": 0.05, "progress_timeout_s": 0.5}
        async with router(one, two, strategy="roundrobin", health=health) as server:

            async def prefill(talk: Conversation) -> None:
                for step in range(40):
                    one.metrics = STEPS.format(step)
                    await asyncio.sleep(0.05)
                await talk.json({})

            one.script = prefill
            answers = await asyncio.gather(*(ask(server, post(chat("x"))) for _ in range(2)))
            assert {a.headers["x-emberline-worker"] for a in answers} == {"w0", "w1"}
            assert await metric(server, RETRIES, reason="engine_stuck") == 0


@pytest.mark.parametrize("metrics", ["", "other_metric 1\n"])
async def test_worker_without_counters_is_not_judged(metrics: str) -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        one.metrics = two.metrics = metrics
        health = {"interval_s": 0.05, "progress_timeout_s": 0.2}
        async with router(one, two, strategy="roundrobin", health=health) as server:

            async def slowly(talk: Conversation) -> None:
                await asyncio.sleep(1.5)
                await talk.json({})

            one.script = slowly
            answers = await asyncio.gather(*(ask(server, post(chat("x"))) for _ in range(2)))
            assert {a.headers["x-emberline-worker"] for a in answers} == {"w0", "w1"}


async def test_only_worker_keeps_its_requests_while_stuck() -> None:
    async with FakeWorker() as one:
        one.metrics = STEPS.format(7)
        health = {"interval_s": 0.05, "progress_timeout_s": 0.2}
        async with router(one, health=health) as server:
            frozen = asyncio.Event()

            async def hang(talk: Conversation) -> None:
                await frozen.wait()
                await talk.json({})

            one.script = hang
            asked = asyncio.create_task(ask(server, post(chat("x"))))
            await until(lambda: server.router.table.workers["w0"].stuck)
            frozen.set()
            assert (await asked).status == 200


def test_steps_are_read_from_metrics() -> None:
    text = (
        b"# HELP\nvllm:prompt_tokens_total 1\nhttp_requests_total 5\nvllm:kv_cache_usage_perc 0\n"
    )
    assert read_steps(text) == b"vllm:prompt_tokens_total 1\nvllm:kv_cache_usage_perc 0"


# -- silent workers


async def test_requests_wait_for_workers_that_time_out() -> None:
    """All workers silent while they prefill: 503 at once would refuse what is served later."""
    async with FakeWorker() as one:
        health = {"interval_s": 0.05, "timeout_s": 0.05, "fall": 2}
        async with router(one, health=health) as server:
            worker = server.router.table.workers["w0"]
            silence = asyncio.Event()
            answer_health = one._answer

            async def silent(request: Any, reader: Any, writer: Any) -> None:
                await silence.wait()
                await answer_health(request, reader, writer)

            one._answer = silent  # type: ignore[method-assign]
            await until(lambda: not worker.up, "its health checks time out")
            assert (await ask(server, post(b"", "/health"))).status == 200
            asked = [asyncio.create_task(ask(server, post(chat("x")))) for _ in range(3)]
            await until(lambda: server.router.admission.depth == 3, "they are queued")
            silence.set()
            assert [(await each).status for each in asked] == [200] * 3
            await one.stop()
            await until(lambda: not worker.up and not server.router.table.waits)
            refused = await ask(server, post(chat("x")))
            assert (refused.status, refused.code) == (503, "no_healthy_worker")


async def test_requests_for_silent_workers_wait_within_the_queue_limits() -> None:
    async with FakeWorker() as one:
        health = {"interval_s": 0.05, "timeout_s": 0.05, "fall": 1}
        queue = {"depth": 1, "timeout_s": 0.6}
        async with router(one, health=health, admission={"queue": queue}) as server:
            stopped = asyncio.Event()

            async def silent(*_: Any) -> None:
                await stopped.wait()

            one._answer = silent  # type: ignore[method-assign]
            await until(lambda: server.router.table.waits)
            first = asyncio.create_task(ask(server, post(chat("x"))))
            await until(lambda: server.router.admission.depth == 1)
            second = await ask(server, post(chat("x")))
            assert (second.status, second.code) == (429, "queue_full")
            answer = await first
            assert (answer.status, answer.code) == (429, "queue_timeout")
            stopped.set()


# -- what teaches nothing


@pytest.mark.parametrize("status", [400, 404, 413, 422])
@pytest.mark.parametrize("strategy", ["prefixaware", "kvaware"])
async def test_rejected_prompt_leaves_nothing_in_the_prefix_index(
    strategy: str, status: int
) -> None:
    async with FakeWorker() as worker, router(worker, strategy=strategy) as server:
        assert (await ask(server, post(chat(LONG)))).status == 200
        before = (await admin(server, "/index")).json["workers"]

        async def reject(talk: Conversation) -> None:
            await talk.json({"error": {"message": "too long"}}, status)

        worker.script = reject
        for text in (LONG + "other " * 500, "quite another " * 500, LONG):
            assert (await ask(server, post(chat(text)))).status == status
            assert (await admin(server, "/index")).json["workers"] == before, text[-20:]
        worker.script = None
        assert (await ask(server, post(chat(LONG)))).status == 200
        found = (await admin(server, "/decisions")).json["decisions"][0]
        assert found["reason"] == "prefix_hit"


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/chat/completions", {"prompt_logprobs": 1}),
        ("/v1/chat/completions", {"prompt_logprobs": 0}),
        ("/v1/chat/completions", {"echo": True}),
        ("/v1/completions", {"prompt_logprobs": 2}),
        ("/v1/completions", {"echo": True, "logprobs": 1}),
        ("/v1/completions", {"echo": True, "logprobs": 0}),
    ],
)
async def test_answer_without_cache_reads_is_no_eviction(path: str, more: dict[str, Any]) -> None:
    name = "prompt" if path.endswith("/completions") and "chat" not in path else "messages"
    text = LONG * 4
    prompt: Any = text if name == "prompt" else [{"role": "user", "content": text}]
    async with FakeWorker() as worker:
        worker.metrics = 'vllm:cache_config_info{num_gpu_blocks="1000",block_size="16"} 1\n'
        async with router(worker) as server:
            policy: Any = server.router.policy
            await until(lambda: "w0" in policy._capacities)
            body = {"model": "m", name: prompt}
            worker.cached_tokens = 0
            await ask(server, post(body, path))
            share = policy._shares.get("w0")
            for _ in range(5):
                await ask(server, post({**body, **more}, path))
            assert policy._shares.get("w0") == share
            found = (await admin(server, "/decisions")).json["decisions"][0]
            assert set(found["misses"]["causes"]) == {"not_cacheable"}
            await ask(server, post(body, path))  # without them, none cached is an eviction
            assert policy._shares.get("w0") != share
