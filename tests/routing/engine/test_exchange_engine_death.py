"""A worker with a dead engine responds with a 500 or an error as first event.

The messages are vLLM's; tests/journeys/request/test_engine_death.py verifies them.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.routing.engine.harness import Client, admin, ask, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker, event

ERRORS = "emberline_router_request_errors_total"
RETRIES = "emberline_router_retries_total"
MESSAGE = "EngineCore encountered an issue. See stack trace (above) for the root cause."
MESSAGES_MESSAGE = (  # begins so, as vLLM 0.32 writes it on /v1/messages
    "2 validation errors for ChatCompletionStreamResponse\nmodel\n  Field required [type=missing, "
    "input_value={'error': {'message': 'En...am': None, 'code': 500}}, input_type=dict]\n"
)


def engine_error(message: str = MESSAGE) -> dict[str, Any]:
    return {
        "error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}
    }


async def dead(talk: Conversation) -> None:
    await talk.json(engine_error(), 500)


async def dead_in_chunks(talk: Conversation) -> None:
    await talk.send(
        b"HTTP/1.1 500 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    text = json.dumps(engine_error()).encode()
    await talk.chunk(text[:20])
    await talk.chunk(text[20:])
    await talk.stream_end()


async def dead_to_the_close(talk: Conversation) -> None:
    await talk.send(b"HTTP/1.1 500 X\r\n\r\n" + json.dumps(engine_error()).encode())
    talk.writer.write_eof()


async def dead_stream(talk: Conversation) -> None:
    """Its head is sent when the engine fails: the error is the first event."""
    await talk.stream_head()
    await talk.chunk(b"data: " + json.dumps(engine_error()).encode() + b"\n\n")
    await talk.chunk(b"data: [DONE]\n\n")
    await talk.stream_end()


async def dead_named_stream(talk: Conversation) -> None:
    await talk.stream_head()
    error = {"type": "error", **engine_error()}
    await talk.chunk(b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n")
    await talk.stream_end()


async def dead_messages_stream(talk: Conversation) -> None:
    await talk.stream_head()
    error = {"type": "error", "error": {"type": "internal_error", "message": MESSAGES_MESSAGE}}
    await talk.chunk(b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n")
    await talk.stream_end()


DEATHS = (
    *(dead, dead_in_chunks, dead_to_the_close),
    *(dead_stream, dead_named_stream, dead_messages_stream),
)


@pytest.mark.parametrize("death", DEATHS, ids=lambda script: script.__name__)
async def test_requests_of_a_dead_engine_are_retried_elsewhere(death: Any) -> None:
    async with FakeWorker() as bad, FakeWorker() as good:
        async with router(bad, good, strategy="roundrobin", health={"eject_s": 600}) as server:
            bad.script = death
            answers = [await ask(server, post(chat(f"x{index}"))) for index in range(6)]
            assert {answer.status for answer in answers} == {200}
            assert len(bad.requests) == 1, "its circuit opens at once"
            assert await metric(server, RETRIES, reason="engine_died") == 1
            assert await metric(server, ERRORS, reason="engine_died") == 0
            assert await metric(server, ERRORS, reason="upstream_5xx") == 0
            shown = {each["id"]: each for each in (await admin(server, "/workers")).json["workers"]}
            assert shown["w0"]["circuit"] == "open"
            assert shown["w0"]["last_error"] == "its engine died"


@pytest.mark.parametrize(
    "message",
    [
        "list index out of range",
        f"template: {MESSAGE}",  # a caller's own words, echoed
        "",
    ],
)
async def test_request_specific_500_is_forwarded_and_not_retried(message: str) -> None:
    async def own_fault(talk: Conversation) -> None:
        await talk.json(engine_error(message), 500)

    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        one.script = two.script = own_fault
        answer = await ask(server, post(chat("x")))
        assert (answer.status, answer.json) == (500, engine_error(message))
        assert len(one.requests) + len(two.requests) == 1
        assert await metric(server, ERRORS, reason="upstream_5xx") == 1
        assert {w.circuit.state for w in server.router.table.workers.values()} == {0}


@pytest.mark.parametrize("size", [0, 10, 16_384, 200_000])
async def test_a_500_of_any_size_is_forwarded_completely(size: int) -> None:
    async def fails(talk: Conversation) -> None:
        await talk.text("x" * size, 500)

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = fails
        async with await Client.to(server.listen) as client:
            for _ in range(2):
                await client.send(post(chat("x")))
                answer = await client.response()
                assert (answer.status, len(answer.body)) == (500, size)
        assert await metric(server, ERRORS, reason="upstream_5xx") == 2


async def test_request_that_kills_engines_is_tried_twice() -> None:
    fakes = [FakeWorker() for _ in range(4)]
    async with fakes[0], fakes[1], fakes[2], fakes[3]:
        async with router(*fakes, retry={"attempts": 4}) as server:
            for fake in fakes:
                fake.script = dead
            answer = await ask(server, post(chat("poison")))
            assert (answer.status, answer.code) == (502, "engine_died")
            assert answer.headers["x-should-retry"] == "false"
            assert sum(len(fake.requests) for fake in fakes) == 2
            assert await metric(server, ERRORS, reason="engine_died") == 1


async def test_single_dead_engine_is_named_and_the_error_is_retryable() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = dead
        answer = await ask(server, post(chat("x")))
        assert (answer.status, answer.code) == (502, "engine_died")
        assert "x-should-retry" not in answer.headers


async def test_started_stream_is_not_retried() -> None:
    """One event was passed on: the client gets the worker's error as the worker sent it."""

    async def dies_later(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await talk.chunk(b"data: " + json.dumps(engine_error()).encode() + b"\n\n")
        await talk.stream_end()

    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        one.script = two.script = dies_later
        answer = await ask(server, post(chat("x", stream=True)))
        assert answer.status == 200
        assert MESSAGE.encode() in answer.body
        assert len(one.requests) + len(two.requests) == 1


async def test_cached_prefixes_of_a_dead_engine_are_dropped() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        assert (await ask(server, post(chat("long " * 400)))).status == 200
        assert server.router.policy.sizes()["w0"] > 0
        worker.script = dead
        await ask(server, post(chat("x")))
        assert not server.router.policy.sizes().get("w0")


@pytest.mark.parametrize("end", ["engine dies", "worker is killed"])
async def test_what_a_dead_worker_had_in_flight_is_served_in_turn(end: str) -> None:
    """However small the retry budget is; it limits the load of the other worker."""
    arrived, at_once = 60, 0
    death = asyncio.Event()

    async def dying(talk: Conversation) -> None:
        await death.wait()
        if end == "engine dies":
            await dead(talk)
        else:
            talk.cut()

    async def serving(talk: Conversation) -> None:
        nonlocal at_once
        at_once = max(at_once, other.active)
        other.active += 1
        await asyncio.sleep(0.005)
        other.active -= 1
        await talk.json({"choices": []})

    async with FakeWorker() as one, FakeWorker() as other:
        other.active = 0  # type: ignore[attr-defined]
        await other.stop()
        async with router(one, other, ready=1) as server:
            one.script, other.script = dying, serving
            asked = [asyncio.create_task(ask(server, post(chat(f"{n}")))) for n in range(arrived)]
            await one.until(lambda: len(one.requests) == arrived)
            await other.start()
            await until(lambda: len(server.router.table.eligible) == 2, "the other is up")
            server.path.retries.budget = 3.0
            death.set()
            answers = await asyncio.gather(*asked)
            assert {answer.status for answer in answers} == {200}
            assert at_once <= 4
            assert not server.path.retries.waiting
            assert await metric(server, "emberline_router_in_flight_requests") == 0


async def test_retry_that_gets_no_turn_is_refused_in_time() -> None:
    death, end = asyncio.Event(), asyncio.Event()

    async def dying(talk: Conversation) -> None:
        await death.wait()
        await dead(talk)

    async def slow(talk: Conversation) -> None:
        await end.wait()
        await talk.json({"choices": []})

    async with FakeWorker() as one, FakeWorker() as other:
        await other.stop()
        queue = {"queue": {"timeout_s": 0.5}}
        async with router(one, other, ready=1, admission=queue) as server:
            one.script, other.script = dying, slow
            asked = [asyncio.create_task(ask(server, post(chat(f"{n}")))) for n in range(3)]
            await one.until(lambda: len(one.requests) == 3)
            await other.start()
            await until(lambda: len(server.router.table.eligible) == 2, "the other is up")
            server.path.retries.budget = 1.0
            death.set()
            served = 0
            for answer in asyncio.as_completed(asked):
                found = await answer
                if found.status == 200:
                    served += 1
                else:
                    assert (found.status, found.code) == (429, "queue_timeout")
                if len(other.requests) == 1:
                    end.set()
            assert served == 1
