"""A worker's /tokenize over a real connection."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from routing.engine.fleet import probe_request
from routing.engine.fleet.workers import Worker
from routing.engine.tokens.outcomes import NoTokens
from routing.engine.tokens.remote import render_body
from routing.engine.tokens.remote import tokenize as tokenize_prompt
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


# -- a worker's renderer


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "multimodal"),
        (
            {"messages": [{"content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]},
            "multimodal",
        ),
        ({"input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}]},
         "multimodal"),
        ({"input": "x", "previous_response_id": "resp_1"}, "unsupported_field"),
        ({"messages": [{"content": [{"type": "text"}] * 200_000}]}, "too_large"),
    ],
)  # fmt: skip
def test_what_no_renderer_is_asked(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoTokens) as caught:
        render_body(data)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("status", "answer", "found"),
    [
        (200, {"token_ids": [1, 2]}, [1, 2]),
        (200, {"token_ids": [1, 2], "features": {"mm_hashes": {}}}, "multimodal"),
        (200, {"tokens": [1]}, "remote_error"),
        (404, {}, "remote_error"),
        (501, {}, "remote_error"),
        (400, {}, "bad_request"),
    ],
)
async def test_answers_of_a_renderer(status: int, answer: Any, found: Any) -> None:
    async def ask(path: str, _body: bytes, _timeout_s: float) -> tuple[int, bytes]:
        assert path == "/v1/messages/render"
        return status, orjson.dumps(answer)

    body = render_body({"messages": [], "stream": True})
    assert orjson.loads(body)["stream"] is False
    try:
        shown: Any = list(await tokenize_prompt(ask, body, 1.0, "/v1/messages/render"))
    except NoTokens as error:
        shown = error.reason
    assert shown == found
