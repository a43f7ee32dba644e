"""Complaints of other routers' users, one test each.

The docstrings name the source. Complaints about one module are tested with it; those here concern
the whole router; placement is in policies/test_base_complaints.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from routing.engine.config import Address
from routing.engine.server import RouterServer
from tests.routing.engine.harness import (
    Client,
    admin,
    ask,
    chat,
    metric,
    post,
    router,
    until,
    workers,
)
from tests.routing.engine.test_server_changes import rewrite
from tests.support.fake_worker import Conversation, FakeWorker, event

ERRORS = "emberline_router_request_errors_total"
DECISIONS = "emberline_router_routing_decisions_total"
PREFIX = "a long and well known beginning " * 40


# -- 3: transparency

BODY = json.dumps(chat("h\u00e9llo \u6f22")).encode()
ODD: dict[str, bytes] = {
    "a plain request": post(chat("x")),
    "text which is not ASCII": post(BODY),
    "no content type, odd case": b"POST /v1/chat/completions HTTP/1.1\r\nHOST: a\r\nX-OdD: 1\r\n"
    b"Content-LENGTH: %d\r\n\r\n%b" % (len(BODY), BODY),
    "a chunked body": b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n"
    b"\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n",
    "a body which is not JSON": post(b"\x1f\x8b\x00binary", "/v1/audio/transcriptions"),
    "a body that is no object": post(b'["x", 1.0]'),
    "an empty body": post(b""),
    "unknown fields": post(chat("x", vllm_xargs={"a": [1]}, extra_body={})),
    "a query": b"GET /v1/anything?a=b&c=%20&d HTTP/1.1\r\nhost: a\r\n\r\n",
    "escapes in the path": b"GET /v1/responses/a%2Fb%3F HTTP/1.1\r\nhost: a\r\n\r\n",
    "a header twice": b"GET /v1/x HTTP/1.1\r\nhost: a\r\naccept: b\r\nAccept: c\r\n\r\n",
    "an empty header": b"GET /v1/x HTTP/1.1\r\nhost: a\r\nx-empty:\r\n\r\n",
    "a header which is not ASCII": b"GET /v1/x HTTP/1.1\r\nhost: a\r\nx: \xe9\r\n\r\n",
    "a large body": post(b"[" + b"1," * 500_000 + b"1]"),
    "a session cookie": post(chat("x"), cookie="a=b; c=d"),
    "an authorization": post(chat("x"), authorization="Bearer token"),
    "a request id": post(chat("x"), x_request_id="mine"),
    "deleting": b"DELETE /v1/files/1 HTTP/1.1\r\nhost: a\r\n\r\n",
}  # fmt: skip


async def mirror(talk: Conversation) -> None:
    """Everything that can be seen of a request, with a status that no other component returns."""
    request = talk.request
    headers = dict(request.headers)
    for name in ("host", "x-request-id", "content-length", "transfer-encoding"):
        headers.pop(name, None)
    digest = hashlib.sha256(request.body).hexdigest()
    await talk.json([request.method, request.target, sorted(headers.items()), digest], 418)


@pytest.mark.parametrize("case", ODD)
async def test_engine_response_reaches_the_client_unchanged(case: str) -> None:
    """production-stack#612: a benchmark passed against the engine itself, and was mostly answered
    400 through the router."""
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = mirror
        routed = await ask(server, ODD[case])
        async with await Client.plain(Address("127.0.0.1", worker.port)) as client:
            await client.send(ODD[case])
            direct = await client.response()
        assert (routed.status, routed.body) == (direct.status, direct.body)
        assert routed.headers["content-type"] == direct.headers["content-type"]


# -- 4: streams


@pytest.mark.parametrize("seed", range(3))
async def test_streams_of_any_chunking_are_complete(seed: int) -> None:
    """production-stack#952, vllm-project/router#113: streamed replies broke off with incomplete
    chunks."""
    draw = random.Random(seed)
    sizes = [draw.choice((1, 2, 100, 4095, 65_536, 300_000)) for _ in range(40)]
    pieces = [draw.randbytes(size) for size in sizes]

    async def stream(talk: Conversation) -> None:
        await talk.stream_head()
        wire = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        while wire:  # segments which end anywhere, also inside a size or between CR and LF
            at = draw.choice((1, 2, 3, 1000, 70_000))
            await talk.send(wire[:at])
            wire = wire[at:]
            if draw.random() < 0.3:
                await asyncio.sleep(0)

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = stream
        answer = await ask(server, post(chat("x", stream=True)))
        assert hashlib.sha256(answer.body).digest() == hashlib.sha256(b"".join(pieces)).digest()


# -- 5, 8, 15: workers which come and go


async def test_every_request_completes_while_workers_change() -> None:
    """ai-dynamo/dynamo#13088: about 1.6 % of requests never finished during worker churn, and only
    a client's disconnect cleaned them up."""

    async def slow(talk: Conversation) -> None:
        await talk.stream_head()
        for _ in range(5):
            await talk.chunk(event("word"))
            await asyncio.sleep(0.002)
        await talk.stream_end()

    async with FakeWorker() as steady, FakeWorker() as a, FakeWorker() as b:
        async with router(steady, a, b) as server:
            for fake in (steady, a, b):
                fake.script = slow
            outcomes: Counter[str] = Counter()
            restarts = 0

            async def churn() -> None:
                nonlocal restarts
                for fake in [a, b] * 6:
                    whole = outcomes["whole"]
                    await fake.stop()
                    await asyncio.sleep(0.01)
                    await fake.start()
                    await asyncio.sleep(0.02)
                    await until(lambda whole=whole: outcomes["whole"] > whole + 4, "answers")
                    restarts += 1

            async def asking(number: int) -> None:
                turn = 0
                while restarts < 12:
                    turn += 1
                    try:
                        answer = await ask(server, post(chat(f"{number} {turn}", stream=True)))
                        outcomes["whole" if answer.status == 200 else "refused"] += 1
                    except (asyncio.IncompleteReadError, ConnectionError):
                        outcomes["broken"] += 1  # visibly: it was being answered when it broke

            async with asyncio.timeout(200):
                await asyncio.gather(churn(), *(asking(number) for number in range(20)))
            assert outcomes["whole"] > 50
            states = server.router.table.workers.values()
            assert [worker.in_flight for worker in states] == [0, 0, 0]
            assert [worker.load for worker in states] == [0, 0, 0]
            counted = await metric(server, "emberline_router_requests_total")
            assert counted == sum(outcomes.values()), "each is counted once"


async def test_outdated_or_empty_worker_list_is_no_crash(tmp_path: Path) -> None:
    """production-stack PR#1061: an instance which was not (or no longer) known gave a 500, an
    empty list an IndexError."""
    path = tmp_path / "r.json"
    async with FakeWorker() as one, router(one, path=path) as server:
        assert (await ask(server, post(chat(PREFIX)))).status == 200
        rewrite(path, server, workers=[])
        for strategy in ("prefixaware", "session", "roundrobin"):
            rewrite(path, server, strategy=strategy)
            for request in (post(chat(PREFIX)), post(chat("x"), x_session_id="s")):
                answer = await ask(server, request)
                assert (answer.status, answer.code) == (503, "no_healthy_worker")
            answer = await ask(server, post(chat("x"), x_emberline_pin="w0"))
            assert (answer.status, answer.code) == (404, "unknown_worker")
            body = json.dumps(chat(PREFIX)).encode()
            assert (await admin(server, "/explain", "POST", body)).status == 503
        assert await metric(server, ERRORS, reason="no_healthy_worker") == 6
        rewrite(path, server, workers=workers(one))
        await until(lambda: server.router.table.eligible)
        assert (await ask(server, post(chat(PREFIX)))).status == 200


async def test_evicted_worker_leaves_nothing(tmp_path: Path) -> None:
    """production-stack#1008: an evicted pod stayed an endpoint until the router was restarted."""
    path = tmp_path / "r.json"
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, path=path) as server:
            await ask(server, post(chat(PREFIX)))
            await two.stop()
            rewrite(path, server, workers=workers(one))
            for index in range(10):
                answer = await ask(server, post(chat(f"{index} {PREFIX}")))
                assert answer.headers["x-emberline-worker"] == "w0"
            listed = (await admin(server, "/workers")).json["workers"]
            assert [worker["id"] for worker in listed] == ["w0"]
            assert 'worker="w1"' not in (await admin(server, "/metrics")).body.decode()
            assert set((await admin(server, "/index")).json["workers"]) == {"w0"}


async def test_draining_worker_gets_nothing_new_and_completes_its_requests(tmp_path: Path) -> None:
    """production-stack#601: terminating pods still received traffic during rolling updates."""
    path = tmp_path / "r.json"
    hold = asyncio.Event()

    async def held(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await hold.wait()
        await talk.stream_end()

    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, path=path, strategy="roundrobin") as server:
            one.script = two.script = held
            async with await Client.to(server.listen) as client:
                await client.send(post(chat("x", stream=True)))
                _, headers = await client.head()
                ending = headers["x-emberline-worker"]
                fake = one if ending == "w0" else two
                listed = [{**item, "draining": item["id"] == ending} for item in workers(one, two)]
                rewrite(path, server, workers=listed)
                before = len(fake.requests)
                hold.set()
                for index in range(10):
                    answer = await ask(server, post(chat(f"{index}")))
                    assert answer.headers["x-emberline-worker"] != ending
                assert len(fake.requests) == before
                body, _ = await client._chunked()
                assert body == event("one")


# -- 22 to 24: operating it


async def test_each_model_is_counted_under_its_own_name() -> None:
    """production-stack#699: per-model router metrics were requested."""
    async with FakeWorker("base") as one, FakeWorker("second") as two:
        async with router(one, two) as server:
            states = server.router.table.workers.values()
            await until(lambda: all(worker.models for worker in states))
            for name in ("base", "second", "never-heard-of"):
                await ask(server, post({"model": name, "prompt": "x"}, "/v1/completions"))
            for name in ("base", "second"):
                counted = await metric(server, "emberline_router_requests_total", model=name)
                assert counted == 1


async def test_stopping_router_is_unready_and_completes_its_streams() -> None:
    """kubernetes-sigs/gateway-api-inference-extension#548: the picker must drain. kserve PR#5602:
    streams were truncated by a grace period which was too short."""
    step = asyncio.Event()

    async def long(talk: Conversation) -> None:
        await talk.stream_head()
        for _ in range(3):
            await talk.chunk(event("word"))
            await step.wait()
        await talk.stream_end()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = long
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True)))
            await client.head()
            assert (await admin(server, "/drain", "POST")).status == 200
            assert (await admin(server, "/readyz")).status == 503
            step.set()
            assert (await ask(server, post(chat("late")))).status == 200
            step.clear()
            closing = asyncio.create_task(server.close())
            await until(lambda: server.router.closing)
            step.set()
            body, _ = await client._chunked()
            assert body == event("word") * 3
            await closing


async def test_workers_are_tried_when_all_are_suspected() -> None:
    """envoyproxy/ai-gateway#2502: fail-open was configured and not honoured."""

    async def die(talk: Conversation) -> None:
        talk.cut()

    async with FakeWorker() as a, FakeWorker() as b, router(a, b) as server:
        a.script = b.script = die
        for index in range(10):
            await ask(server, post(chat(f"{index}")))
        states = server.router.table.workers.values()
        assert not any(worker.circuit.admits for worker in states), "all are left out"
        a.script = b.script = None
        assert (await ask(server, post(chat("x")))).status == 200


async def test_models_stay_listed_while_workers_are_replaced(tmp_path: Path) -> None:
    """kserve#5443: a model vanished from the list in the middle of an update."""
    path = tmp_path / "r.json"
    wire = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"

    async def listed(server: RouterServer) -> list[str]:
        return [model["id"] for model in (await ask(server, wire)).json["data"]]

    async with FakeWorker() as old, FakeWorker() as new:
        async with router(old, path=path, model="m") as server:
            await until(lambda: server.router.table.workers["w0"].models)
            both = [{"id": "w0", "url": old.url}, {"id": "w1", "url": new.url}]
            new.healthy = False
            for change in (both, [{**both[0], "draining": True}, both[1]], both[1:], []):
                rewrite(path, server, workers=change)
                assert await listed(server) == ["m"], change


VLLM_PATHS = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
    "/v1/models", "/v1/audio/transcriptions", "/v1/rerank", "/v1/score", "/rerank", "/score",
    "/pooling", "/classify", "/tokenize", "/detokenize", "/version", "/metrics", "/load",
    "/invocations", "/sleep", "/wake_up", "/reset_prefix_cache", "/server_info", "/docs",
    "/openapi.json", "/v1/load_lora_adapter", "/health/", "//health", "/HEALTH", "/health?x",
    "/health/../v1/models", "/ping/x", "/",
)  # fmt: skip


async def test_only_health_answers_without_a_key(tmp_path: Path) -> None:
    """production-stack#910, vllm-project/vllm#18892: the router's key was missing on one path;
    some routes of the engine skipped it."""
    keys = tmp_path / "keys.json"
    digest = hashlib.sha256(b"secret").hexdigest()
    keys.write_text(json.dumps({"keys": [{"id": "a", "sha256": digest}]}))
    async with FakeWorker() as worker, router(worker, api_keys_file=str(keys)) as server:
        for path in VLLM_PATHS:
            for method in ("GET", "POST", "HEAD"):
                head = f"{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
                answer = await ask(server, head.encode(), method)
                open_to_all = path == "/health?x"
                assert answer.status == (200 if open_to_all else 401), (method, path)
        assert worker.requests == []
