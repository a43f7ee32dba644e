"""Incomplete responses are visible to the client, and streams state the reason.

An event stream gets one error event at an event boundary and then ends without its terminator, so
that readers of OpenAI (or Anthropic) errors raise it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from routing.engine.prompt.engine_request import opening_events
from tests.routing.engine.harness import (
    WITH_USAGE,
    Client,
    admin,
    ask,
    chat,
    metric,
    post,
    router,
    until,
)
from tests.routing.engine.test_exchange_engine_death import MESSAGES_MESSAGE
from tests.support.fake_worker import Conversation, FakeWorker, event

ERRORS = "emberline_router_request_errors_total"


async def read_all(client: Client) -> tuple[bytes, bool]:
    """Everything until the end, and whether that was a reset."""
    data = b""
    async with asyncio.timeout(60):
        while True:
            try:
                more = await client.reader.read(65_536)
            except ConnectionResetError:
                return data, True
            if not more:
                return data, False
            data += more


def errors_in(wire: bytes) -> list[dict[str, Any]]:
    lines = (line for line in wire.split(b"\n") if line.startswith(b'data: {"error"'))
    return [json.loads(line[6:])["error"] for line in lines]


def breaks(*parts: bytes, chunked: bool = True):
    """A stream of these parts, then the worker is killed."""

    async def script(talk: Conversation) -> None:
        await talk.stream_head()
        for part in parts:
            await (talk.chunk(part) if chunked else talk.send(part))
        await asyncio.sleep(0)
        talk.writer.write_eof()
        await asyncio.Event().wait()

    return script


@pytest.mark.parametrize("ending", [b"\n\n", b"\r\n\r\n"])
async def test_broken_stream_ends_with_an_error_event(ending: bytes) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = breaks(event("one"), b"data: {}" + ending[:1], ending[1:])
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True)))
            await client.head()
            wire, _ = await read_all(client)
        assert wire.startswith(b"%x\r\n%b\r\n" % (len(event("one")), event("one")))
        (error,) = errors_in(wire)
        assert (error["type"], error["code"]) == ("server_error", "upstream_reset")
        assert "was cut off" in error["message"]
        assert b"0\r\n\r\n" not in wire
        assert b"[DONE]" not in wire
        # What came last is a whole chunk: a reader gets the event before it finds no end.
        assert wire.endswith(b"}}\n\n\r\n")
        assert await metric(server, ERRORS, reason="broken_stream") == 1


async def test_messages_streams_name_the_error_event() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = breaks(b"event: ping\ndata: {}\n\n")
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True), "/v1/messages"))
            await client.head()
            wire, _ = await read_all(client)
        assert b'event: error\ndata: {"type":"error","error":{"message":' in wire


async def test_without_chunks_the_event_precedes_the_reset() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = breaks(event("one"))
        async with await Client.to(server.listen) as client:
            wire = post(chat("x", stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0")
            await client.send(wire)
            await client.head()
            got, reset = await read_all(client)
        assert reset, "without chunks only a reset tells a broken end from a good one"
        assert got.startswith(event("one"))


@pytest.mark.parametrize(
    ("parts", "chunked"),
    [
        ((event("one"), b"data: {half"), True),  # inside an event
        ((b"%x\r\n%b\r\n" % (len(event("one")), event("one")), b"1f"), False),  # inside a size
        ((b"%x\r\n%b" % (len(event("one")), event("one")),), False),  # before a chunk's end
        ((b"%x\r\n%b" % (len(event("one")) + 9, event("one")),), False),  # inside a chunk
    ],
)
async def test_no_event_is_inserted_inside_another(parts: tuple[bytes, ...], chunked) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = breaks(*parts, chunked=chunked)
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", **WITH_USAGE)))
            await client.head()
            wire, _ = await read_all(client)
        assert errors_in(wire) == []
        assert b"broke" not in wire
        assert not wire.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("rest", [b"", b"\r\n"])
async def test_no_event_is_inserted_after_a_malformed_chunk(rest: bytes) -> None:
    """Also where the bad bytes complete a chunk which the client has begun: they are not sent."""
    seen = asyncio.Event()
    first = b"%x\r\n%b" % (len(event("one")), event("one"))

    async def script(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.send(first)
        await seen.wait()
        await talk.send(rest + b"zz\r\n")
        await asyncio.Event().wait()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = script
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", **WITH_USAGE)))
            await client.head()
            async with asyncio.timeout(60):
                assert await client.reader.readexactly(len(first)) == first
            seen.set()
            assert await read_all(client) == (b"", False)


async def test_response_that_is_no_event_stream_gets_nothing_added() -> None:
    async def script(talk: Conversation) -> None:
        await talk.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await talk.chunk(b"line\n\n")
        talk.writer.write_eof()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = script
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x")))
            await client.head()
            assert await read_all(client) == (b"6\r\nline\n\n\r\n", False)


async def test_worker_timeout_in_a_stream_ends_it() -> None:
    """A machine which vanished sends no reset: without this its streams would never end."""

    async def silent(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await asyncio.Event().wait()

    limits = {"silence_timeout_s": 0.2}
    async with FakeWorker() as worker, router(worker, limits=limits) as server:
        worker.script = silent
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True)))
            await client.head()
            wire, _ = await read_all(client)
        (error,) = errors_in(wire)
        assert error["code"] == "upstream_timeout"
        await worker.until(lambda: len(worker.cancelled) == 1)
        state = server.router.table.workers["w0"]
        assert (state.failures, state.in_flight, state.load) == (1, 0, 0)
        assert await metric(server, ERRORS, reason="broken_stream") == 1


async def test_client_pause_does_not_count_against_the_worker() -> None:
    """While the client does not read, the worker may not write: that is no silence of its."""
    block = b"x" * 65_536

    async def firehose(talk: Conversation) -> None:
        await talk.stream_head()
        for _ in range(400):
            await talk.chunk(block)
        await talk.stream_end()

    limits = {"silence_timeout_s": 0.3}
    async with FakeWorker() as worker, router(worker, limits=limits) as server:
        worker.script = firehose
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", **WITH_USAGE)))
            await client.head()
            (connection,) = server.router.clients
            await until(lambda: connection._write_paused, "paused")
            ticks = 0

            def count(force: bool = False) -> None:
                nonlocal ticks
                ticks += 1

            server.reload = count  # called after the connections' deadlines were checked
            await until(lambda: ticks >= 3, "the clock has looked more than once")
            async with asyncio.timeout(60):
                for _ in range(400):
                    await client.reader.readexactly(len(b"10000\r\n") + len(block) + 2)
                assert await client.reader.readexactly(5) == b"0\r\n\r\n"
        assert server.router.table.workers["w0"].failures == 0


@pytest.mark.parametrize("status", [204, 304])
async def test_bodyless_responses_have_no_content_length(status: int) -> None:
    """A worker may name a length there by mistake: a client would wait for that body."""
    for line in (b"content-length: 5", b"transfer-encoding: chunked"):

        async def script(talk: Conversation, line: bytes = line) -> None:
            await talk.send(b"HTTP/1.1 %d X\r\n%b\r\n\r\n" % (status, line))

        async with FakeWorker() as worker, router(worker) as server:
            worker.script = script
            async with await Client.to(server.listen) as client:
                for _ in range(2):
                    await client.send(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
                    found, headers = await client.head()
                    assert found == status
                    assert not {"content-length", "transfer-encoding"} & set(headers)


async def test_http_version_is_that_of_the_router() -> None:
    async def old(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.0 200 Fine\r\ncontent-length: 2\r\n\r\n{}")

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = old
        async with await Client.to(server.listen) as client:
            for _ in range(2):
                await client.send(post(chat("x")))
                line = await client.reader.readuntil(b"\r\n")
                assert line == b"HTTP/1.1 200 Fine\r\n"
                await client.reader.readuntil(b"{}")
        assert server.router.table.workers["w0"].pool.idle == [], "1.0 does not keep connections"


async def test_worker_that_stops_reading_an_upload_times_out() -> None:
    """Nothing else would end it: the router reads neither its client nor the worker then."""
    accepted = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"GET /" in head:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            return
        accepted.set()
        await asyncio.Event().wait()

    listener = await asyncio.start_server(deaf, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    limits = {"hold_bytes": 1024, "body_bytes": 40_000_000, "stall_timeout_s": 0.2}
    one = [{"id": "w0", "url": f"http://127.0.0.1:{port}"}]
    async with router(workers=one, ready=1, limits=limits) as server:
        async with await Client.to(server.listen) as client:
            client.writer.write(post(b"x" * 30_000_000, "/upload"))
            async with asyncio.timeout(60):
                await accepted.wait()
            answer = await client.response()
            assert (answer.status, answer.code) == (504, "upstream_timeout")
            assert "stopped reading" in answer.json["error"]["message"]
        state = server.router.table.workers["w0"]
        assert (state.failures, state.in_flight, state.load) == (1, 0, 0)
    listener.close()


async def test_unsent_upload_is_retried_on_another_worker() -> None:
    async with FakeWorker() as a, FakeWorker() as b:
        limits = {"hold_bytes": 1024}
        async with router(a, b, limits=limits, health={"interval_s": 60}) as server:
            await a.stop()
            b.script = lambda talk: talk.json({"bytes": len(talk.request.body)})
            for _ in range(2):  # one of the two goes to the dead one first
                answer = await ask(server, post(b"x" * 100_000, "/upload"))
                assert (answer.status, answer.json) == (200, {"bytes": 100_000})
            name = "emberline_router_retries_total"
            assert await metric(server, name, reason="upstream_connect") == 1


async def test_uploads_use_no_kept_connection() -> None:
    """It could be closed as it is used, and an upload cannot be sent twice."""
    async with FakeWorker() as worker, router(worker, limits={"hold_bytes": 1024}) as server:
        worker.script = lambda talk: talk.json({})
        assert (await ask(server, post(chat("x")))).status == 200
        pool = server.router.table.workers["w0"].pool
        (kept,) = pool.idle
        assert (await ask(server, post(b"x" * 100_000, "/upload"))).status == 200
        assert kept.uses == 1


async def test_small_chunks_are_buffered_compactly() -> None:
    """A list of two-byte pieces would take sixty bytes for each of them."""
    body = b"ab" * 100_000
    wire = b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    wire += b"".join(b"2\r\n%b\r\n" % body[at : at + 2] for at in range(0, len(body), 2))
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = lambda talk: talk.json({})
        async with await Client.to(server.listen) as client:
            await client.send(wire)
            (connection,) = await until(lambda: server.router.clients)
            await until(lambda: connection._held == len(body), "all of it is held")
            assert len(connection._pieces) < 1000
            await client.send(b"0\r\n\r\n")
            assert (await client.response()).status == 200
        assert worker.requests[0].body == body


async def test_slow_upload_times_out() -> None:
    """A byte now and then would keep an idle timeout from ever running out."""
    limits = {"body_timeout_s": 0.6}
    async with FakeWorker() as worker, router(worker, limits=limits) as server:
        async with await Client.to(server.listen) as client:
            await client.send(post(b"x" * 100_000)[:-100_000])
            answered = asyncio.create_task(client.response())

            async def drip() -> None:
                while not answered.done():
                    client.writer.write(b"x")
                    await asyncio.sleep(0.05)

            dripping = asyncio.create_task(drip())
            answer = await answered
            await dripping
            assert (answer.status, answer.code) == (408, "request_timeout")
        assert worker.requests == []


async def test_keepalive_detects_a_dead_machine() -> None:
    """Keep-alive probes are on for connections to workers: no packet reports a power cut."""
    async with FakeWorker() as worker, router(worker) as server:
        assert (await ask(server, post(chat("x")))).status == 200
        (connection,) = server.router.table.workers["w0"].pool.idle
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert 0 < sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 30
        assert 0 < sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 120_000


async def test_decisions_name_the_failure() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = breaks(event("one"))
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True)))
            await client.head()
            await read_all(client)
        (found,) = (await admin(server, "/decisions")).json["decisions"]
        assert (found["status"], found["error"]) == (200, "broken_stream")
        states = (await admin(server, "/workers")).json["workers"]
        assert "was cut off" in states[0]["last_error"]


FAILED = b'data: {"type":"response.failed","response":{"error":{"code":"x"}}}\n\n'
NAMED = b'event: error\ndata: {"type":"error","error":{"type":"internal_error","message":"x"}}\n\n'
NAMED_DEAD = NAMED.replace(b'"x"', json.dumps(MESSAGES_MESSAGE).encode())
PLAIN = b'data: {"error": {"message": "x", "code": 500}}\n\n'
DEAD = PLAIN.replace(b'"x"', b'"EngineCore encountered an issue. See stack trace."')
DONE = b"data: [DONE]\n\n"
TOKENS = 9
FINISHED = b'data: {"type":"response.completed","response":{"error":null,"id":"r"}}\n\n'


@pytest.mark.parametrize("diagnose", [False, True])
@pytest.mark.parametrize(
    ("path", "last", "error", "state"),
    [
        ("/v1/chat/completions", (PLAIN, DONE), "broken_stream", "up"),
        ("/v1/chat/completions", (DEAD, DONE), "broken_stream", "down"),
        ("/v1/chat/completions", (PLAIN + DONE,), "broken_stream", "up"),
        ("/v1/chat/completions", (event('{"error": {}}'), DONE), "", "up"),
        ("/v1/messages", (NAMED,), "broken_stream", "up"),
        ("/v1/messages", (NAMED_DEAD,), "broken_stream", "down"),
        ("/v1/responses", (FAILED,), "broken_stream", "up"),
        ("/v1/responses", (FINISHED,), "", "up"),
    ],
)
async def test_error_that_the_worker_reports_is_recorded(
    path: str, last: tuple[bytes, ...], error: str, state: str, diagnose: bool
) -> None:
    """The events go on unchanged; the request has failed, also for the worker's health."""

    async def script(talk: Conversation) -> None:
        await talk.stream_head()
        for part in (*[event("one")] * TOKENS, *last):
            await talk.chunk(part)
        await talk.stream_end()

    health = {"interval_s": 60, "eject_s": 60}
    async with FakeWorker() as worker, router(worker, health=health) as server:
        worker.script = script
        headers = {"x-emberline-diagnostics": "cache"} if diagnose else {}
        found = await ask(server, post(chat("x", stream=True), path, **headers))
        assert found.body.startswith(event("one"))
        if last != (FINISHED,) and not (diagnose and last == (FAILED,)):  # which get the field
            assert found.body.endswith(b"".join(last))
        (decision,) = (await admin(server, "/decisions")).json["decisions"]
        assert (decision["status"], decision["error"]) == (200, error)
        if error:
            generated = TOKENS - opening_events(path.encode(), 1)
            assert decision["completion_tokens"] == generated > 0
        assert await metric(server, ERRORS, reason="broken_stream") == (1 if error else 0)
        (one,) = (await admin(server, "/workers")).json["workers"]
        assert one["state"] == state
