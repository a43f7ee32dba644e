"""Half-closed and disconnected clients."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from routing.engine.server import RouterServer
from tests.routing.engine.harness import Client, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker, event

ERRORS = "emberline_router_request_errors_total"


async def half_closed(server, wire: bytes) -> Client:
    """A client which sent this and then shut down its sending side."""
    client = await Client.to(server.listen)
    await client.send(wire)
    client.writer.write_eof()
    return client


async def final(client: Client) -> tuple[int, dict[str, str]]:
    """The head of the answer itself: interim ones are skipped, as every client must."""
    while True:
        status, headers = await client.head()
        if status >= 200:
            return status, headers
        assert status == 100


@pytest.mark.parametrize("when", ["before the answer", "with its first byte"])
async def test_half_closed_client_gets_its_response(when: str) -> None:
    shut = asyncio.Event()

    async def slow(talk: Conversation) -> None:
        if when == "before the answer":
            await shut.wait()
        await talk.stream_head()
        await talk.chunk(event("one"))
        await shut.wait()
        await talk.chunk(event("two"))
        await talk.stream_end()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = slow
        async with await half_closed(server, post(chat("x", stream=True))) as client:
            (connection,) = await until(lambda: server.router.clients)
            await until(lambda: connection._end_sent, "the end is seen")
            shut.set()
            status, _ = await final(client)
            body, _ = await client._chunked()
            assert (status, body) == (200, event("one") + event("two"))
            assert await client.closed(), "nothing more can be asked on it"
        assert worker.cancelled == []


async def test_stream_continues_for_a_half_closed_client() -> None:
    """What is put in to find out whether it reads is a comment, which is no event."""
    shut = asyncio.Event()

    async def slow(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await shut.wait()
        await talk.chunk(event("two"))
        await talk.stream_end()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = slow
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True)))
            await client.head()
            client.writer.write_eof()
            (connection,) = server.router.clients
            await until(lambda: connection._end_sent, "the end is seen")
            shut.set()
            body, _ = await client._chunked()
            assert body == event("one") + b":\n\n" + event("two")


async def test_pipelined_requests_are_answered_after_a_half_close() -> None:
    health = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
    async with FakeWorker() as worker, router(worker) as server:
        wire = health + b"".join(post(chat(f"{index}")) for index in range(10)) + health * 3
        async with await half_closed(server, wire + b"GET /not-whole") as client:
            for _ in range(14):
                status, headers = await final(client)
                assert status == 200
                await client.reader.readexactly(int(headers["content-length"]))
            assert await client.closed()
        assert len(worker.requests) == 10


async def test_buffered_responses_are_delivered_after_a_half_close() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        client = await Client.to(server.listen)
        async with client:
            request = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"
            client.writer.write(request * 60_000)
            client.writer.write_eof()
            for _ in range(60_000):
                assert (await client.response()).status == 200
            assert await client.closed()


async def test_requests_delayed_by_a_slow_reader_are_answered_after_a_half_close() -> None:
    """They are in the router's hands when the end comes, and fewer than would stop its reading."""
    async with FakeWorker("m" * 20_000) as worker, router(worker) as server:
        await until(lambda: server.router.table.workers["w0"].models)
        async with await Client.to(server.listen) as client:
            client.writer.write(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n" * 1500)
            client.writer.write_eof()
            (connection,) = await until(lambda: server.router.clients)
            await until(lambda: connection._end_sent, "the end is seen")
            assert connection._write_paused
            assert connection._buffer
            for _ in range(1500):
                assert (await client.response()).status == 200
            assert await client.closed()


@pytest.mark.parametrize("wire", [b"", b"GET / HT", post(chat("x"))[:-3]])
async def test_incomplete_request_is_dropped_after_a_half_close(wire: bytes) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        async with await half_closed(server, wire) as client:
            assert await client.closed()
        assert worker.requests == []


async def test_incomplete_upload_stops_the_worker() -> None:
    async with FakeWorker() as worker, router(worker, limits={"hold_bytes": 1024}) as server:
        wire = post(b"x" * 100_000, "/upload")[:-50_000]
        connections = worker.connections
        async with await Client.to(server.listen) as client:
            await client.send(wire)
            await until(lambda: worker.connections > connections, "it is being sent on")
            client.writer.write_eof()
            await until(lambda: not server.router.clients)
        state = server.router.table.workers["w0"]
        assert (state.in_flight, state.load) == (0, 0)
        assert await metric(server, ERRORS, reason="client_cancelled") == 1


async def test_http_1_0_half_close_counts_as_a_disconnect() -> None:
    async def never(talk: Conversation) -> None:
        await asyncio.Event().wait()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = never
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x")).replace(b"HTTP/1.1", b"HTTP/1.0"))
            await worker.until(lambda: len(worker.requests) == 1)
            client.writer.write_eof()
            await worker.until(lambda: len(worker.cancelled) == 1)


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("when", ["before the head", "in the stream", "inside an event"])
async def test_disconnected_client_stops_the_worker_at_once(when: str, how: str) -> None:
    """Whatever the worker does in the meantime, even nothing; the clock is not waited for."""

    async def silent(talk: Conversation) -> None:
        if when != "before the head":
            await talk.stream_head()
            await talk.chunk(event("one"))
        if when == "inside an event":
            await talk.chunk(b"data: ")
            await hung_up.wait()
            await talk.chunk(b"{}\n\n")
        await asyncio.Event().wait()

    hung_up = asyncio.Event()
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = silent
        assert server._ticker is not None
        server._ticker.cancel()
        client = await Client.to(server.listen)
        await client.send(post(chat("x", stream=True)))
        await worker.until(lambda: len(worker.requests) == 1)
        if when != "before the head":
            await client.head()
        if how == "reset":
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()
        hung_up.set()
        await worker.until(lambda: len(worker.cancelled) == 1)
        await until(lambda: not server.router.clients)
        assert await metric(server, ERRORS, reason="client_cancelled") == 1


async def test_reset_is_noticed_while_reading_is_paused() -> None:
    """More was pipelined than is held, so the router has stopped reading."""
    never = asyncio.Event()

    async def wait(talk: Conversation) -> None:
        await never.wait()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = wait
        client = await Client.to(server.listen)
        await client.send(post(chat("x")))
        await worker.until(lambda: len(worker.requests) == 1)
        client.writer.write(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n" * 250_000)
        (connection,) = server.router.clients
        await until(lambda: connection._read_paused, "the router stops reading")
        sock = client.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()
        await worker.until(lambda: len(worker.cancelled) == 1)


async def an_upload_in_a_queue(server: RouterServer, worker: FakeWorker) -> tuple[Client, Client]:
    """Who has the only slot, and who waits with a body of which a part is still unread."""
    first = await Client.to(server.listen)
    await first.send(post(chat("x")))
    await worker.until(lambda: len(worker.requests) == 1)
    second = await Client.to(server.listen)
    await second.send(post(b"x" * 200_000, "/upload"))
    await until(lambda: server.router.admission.depth == 1, "it waits")
    return first, second


ONE_SLOT = {"limits": {"hold_bytes": 1024}, "admission": {"max_in_flight": 1}}


async def test_queued_upload_may_be_complete_before_a_half_close() -> None:
    release = asyncio.Event()

    async def wait(talk: Conversation) -> None:
        await release.wait()
        await talk.json({"bytes": len(talk.request.body)})

    async with FakeWorker() as worker, router(worker, **ONE_SLOT) as server:
        worker.script = wait
        first, second = await an_upload_in_a_queue(server, worker)
        second.writer.write_eof()
        (waiting,) = [one for one in server.router.clients if one._read_paused]
        await until(lambda: waiting._probed, "its end is seen")
        release.set()
        assert (await first.response()).status == 200
        status, _ = await final(second)
        assert status == 200
        assert await second.reader.readuntil(b"}") == b'{"bytes": 200000}'


async def test_queued_upload_of_a_disconnected_client_leaves_the_queue() -> None:
    async def never(talk: Conversation) -> None:
        await asyncio.Event().wait()

    async with FakeWorker() as worker, router(worker, **ONE_SLOT) as server:
        worker.script = never
        first, second = await an_upload_in_a_queue(server, worker)
        second.writer.close()
        await until(lambda: server.router.admission.depth == 0, "it is gone")
        await first.__aexit__()
