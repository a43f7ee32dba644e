"""Bodies of any shape get an answer: the engine's, or 400 from the router."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from routing.engine.observe.metrics import is_compiled
from routing.engine.tokens.usage import AnswerTokens
from tests.routing.engine.harness import Client, ask, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker, event

# What replaces a method cannot replace one of a native class.
interpreted = pytest.mark.skipif(is_compiled(), reason="the compiled router has native classes")
ERRORS = "emberline_router_request_errors_total"

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
SIZES = (0, 20_000, 300_000)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def deep_bodies() -> Iterator[bytes]:
    for depth in (250, 500, 1020):
        for field in ("stream_options", "cache_salt", "tools", "messages", "unknown", "model"):
            value = nested(depth)
            if field == "stream_options":
                value = b'{"x":%b}' % value
            yield b'{"stream":true,"prompt":"a","%b":%b' % (field.encode(), value)
    yield b'{"messages":[{"role":"user","content":%b}]' % nested(300)


def odd_bodies() -> Iterator[bytes]:
    for field in (
        *("messages", "prompt", "input", "tools", "system", "instructions", "cache_salt"),
        *("stream_options", "n", "model", "user", "previous_response_id", "prompt_embeds"),
        *("chat_template_kwargs", "max_tokens", "echo", "documents"),
    ):
        for value in (5, -1, 1.5, True, "x", "", [], [5], [[[]]], [None], {}, {"a": 1}, 2**70):
            body = {"stream": True, "messages": [{"role": "user", "content": "a"}]}
            yield json.dumps({**body, field: value})[:-1].encode()
    for content in (5, [5], [[]], {"a": 1}, [{"type": 5}], [{"type": "text", "text": 5}]):
        yield json.dumps({"messages": [{"role": 5, "content": content}]})[:-1].encode()


async def answers(talk: Conversation) -> None:
    await talk.json({"id": "a", "choices": []})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [deep_bodies, odd_bodies])
async def test_body_of_any_shape_is_answered(kind: Any, size: int, path: str) -> None:
    rest = b',"filler":"%b"}' % (b"x" * size)
    wrong: list[Any] = []
    async with FakeWorker() as fake:
        fake.script = answers
        async with router(fake) as server:
            for number, body in enumerate(kind()):
                lines = {"x_emberline_diagnostics": "cache"} if number % 2 else {}
                answer = await ask(server, post(body + rest, path, **lines))
                if answer.status not in (200, 400):
                    wrong.append((body[:200], answer.status, answer.body[:200]))
    assert wrong == []


@pytest.mark.parametrize("path", PATHS)
async def test_last_event_nested_too_deeply_for_diagnostics_goes_on_unchanged(path: str) -> None:
    last = b'data: {"type":"response.completed","usage":{},"finish_reason":"stop","x":%b}\n\n'
    last = last.replace(b'stop"', b'stop","response":{"id":"a"}') % nested(300)

    async def script(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await talk.chunk(last)
        await talk.stream_end()

    async with FakeWorker() as fake, router(fake) as server:
        fake.script = script
        body = {"model": "m", "messages": [], "prompt": "a", "input": "a", "stream": True}
        answer = await ask(server, post(body, path, x_emberline_diagnostics="cache"))
        assert (answer.status, answer.body) == (200, event("one") + last)
        assert await metric(server, ERRORS, reason="internal_error") == 0


def failing(*_: Any) -> Any:
    raise ZeroDivisionError


@interpreted
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "place", ["meter.prepare", "meter.admit", "identifier.read", "policy.rank", "meter.account"]
)
async def test_exception_ends_only_its_request(
    place: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _, name = place.rpartition(".")
    limits = {"max_in_flight": 1}
    async with FakeWorker() as fake, router(fake, admission=limits) as server:
        target = getattr(server.router, owner)
        names = ["read", "read_large"] if name == "read" else [name]
        with monkeypatch.context() as patch:
            for each in names:
                patch.setattr(target, each, failing)
            answer = await ask(server, post(chat("a" * size)))
        expected = 200 if place == "meter.account" else 500
        assert answer.status == expected
        assert expected == 200 or answer.code == "internal_error"
        assert await metric(server, ERRORS, reason="internal_error") > 0
        # Its place in the queue and its worker's load are free again.
        assert (await ask(server, post(chat("b")))).status == 200
        assert await metric(server, "emberline_router_in_flight_requests") == 0


@interpreted
async def test_exception_in_a_stream_breaks_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeWorker() as fake, router(fake) as server:
        proceed = asyncio.Event()

        async def script(talk: Conversation) -> None:
            await talk.stream_head()
            await talk.chunk(event("one"))
            await proceed.wait()
            await talk.chunk(event("two"))
            await asyncio.Event().wait()

        fake.script = script
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("a", stream=True)))
            await client.head()
            await client.reader.readuntil(b"\n\n")
            monkeypatch.setattr(AnswerTokens, "passes", failing)
            proceed.set()
            assert await client.reader.read(-1) in (b"", b"\r\n")
        await until(lambda: fake.cancelled, "the worker's request is cancelled")
        assert await metric(server, ERRORS, reason="internal_error") == 1
        assert await metric(server, ERRORS, reason="broken_stream") == 1


async def test_failing_step_of_the_housekeeping_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "router.json"
    async with FakeWorker() as fake, router(fake, path=path) as server:
        steps = [(name, failing) for name, _ in server._steps if name != "config"]
        config = next(step for step in server._steps if step[0] == "config")
        monkeypatch.setattr(server, "_steps", (*steps, config))
        path.write_text(json.dumps({**json.loads(path.read_text()), "strategy": "session"}))
        await until(lambda: server.router.config.strategy == "session", "it is loaded")
        assert await metric(server, ERRORS, reason="internal_error") >= len(steps)
