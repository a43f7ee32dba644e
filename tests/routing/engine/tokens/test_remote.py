"""A worker's /tokenize over a real connection."""

from __future__ import annotations

import pytest

from routing.engine.fleet import probe_request
from routing.engine.fleet.workers import Worker
from routing.engine.tokens.service import TokenOutcome, TokensConfig, TokenService
from tests.routing.engine.harness import router, until
from tests.support.fake_worker import Conversation, FakeWorker


async def tokenize(conversation: Conversation) -> None:
    assert conversation.request.method == "POST"
    assert conversation.request.headers["content-type"] == "application/json"
    words = conversation.request.json["prompt"].split()
    await conversation.json({"count": len(words), "tokens": [len(word) for word in words]})


async def test_worker_is_queried_over_its_own_connection() -> None:
    async with FakeWorker() as fake, router(fake) as server:
        fake.script = tokenize
        worker: Worker = server.router.table.workers["w0"]

        async def question(path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
            return await probe_request.send_probe(worker, path, timeout_s, body)

        service = TokenService(TokensConfig(wait_s=10), None, question)
        done: list[TokenOutcome] = []
        for count in range(1, 4):
            body = {"prompt": "one three " + "x" * 100_000 * count}
            service.submit(b"/v1/completions", body, "m", done.append)
            await until(lambda: done, "tokens")
            tokens = done.pop().tokens
            assert tokens is not None and tokens.ids == [3, 5, 100_000 * count]
        fake.script = lambda conversation: conversation.cut()
        service.submit(b"/v1/completions", {"prompt": "x"}, "m", done.append)
        await until(lambda: done, "a reason")
        assert done[0].reason == "remote_error"
        await service.close()


async def test_query_without_a_body_is_a_get() -> None:
    async with FakeWorker() as fake, router(fake) as server:
        worker = server.router.table.workers["w0"]
        status, _ = await probe_request.send_probe(worker, "/v1/models", 10)
        assert status == 200
        fake.script = lambda conversation: conversation.cut()
        with pytest.raises(probe_request.ProbeError):
            await probe_request.send_probe(worker, "/x", 10)
        assert fake.requests[-1].method == "GET"
