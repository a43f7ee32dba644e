"""Every fault at every place: real sockets, and a proxy that breaks the connection.

Each request ends with a complete response or a visible error; nothing of it stays in the router;
the next request is served.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools

import pytest

from routing.engine.config import Address
from routing.engine.server import RouterServer
from tests.routing.engine.harness import Client, ask, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker
from tests.support.faultproxy import FaultProxy

PIECES = 40
BODY = post(chat("x" * 3000, stream=True))


async def checked_stream(talk: Conversation) -> None:
    """Events whose last one has the checksum of the others."""
    await talk.stream_head()
    digest = hashlib.sha256()
    for index in range(PIECES):
        event = b"data: %d %b\n\n" % (index, b"." * (index * 37 % 400))
        digest.update(event)
        await talk.chunk(event)
    await talk.chunk(b"data: " + digest.hexdigest().encode() + b"\n\n")
    await talk.stream_end()


def is_right(body: bytes) -> bool:
    events, _, last = body.removesuffix(b"\n\n").rpartition(b"\n\n")
    return last == b"data: " + hashlib.sha256(events + b"\n\n").hexdigest().encode()


# Of the client and of the worker apart: each is shortened only where that side stalls.
CLIENT_LIMITS = {"header_timeout_s": 0.6, "body_timeout_s": 0.6, "idle_timeout_s": 0.8}
WORKER_LIMITS = {"response_timeout_s": 0.8, "silence_timeout_s": 0.8}


async def one_request(address: Address) -> str:
    """What a client makes of it: right, refused, or broken off."""
    async with await Client.to(address) as client:
        try:
            await client.send(BODY)
            answer = await client.response()
        except (asyncio.IncompleteReadError, ConnectionError):
            return "broken"
        if answer.status != 200:
            assert answer.json["error"]["message"]
            return "refused"
        assert is_right(answer.body), "a wrong answer looks right"
        return "right"


async def nothing_is_left(server: RouterServer) -> None:
    workers = server.router.table.workers.values()
    await until(lambda: all(worker.in_flight == 0 for worker in workers), "requests end")
    assert all(worker.load == 0 for worker in workers)
    await until(lambda: not server.router.clients, "connections end")


# Bytes after which it happens: at connecting; in the head; in the body or the stream.
PLACES = {"there": (0, 30, 1500), "back": (0, 60, 150, 1000, 5000)}
CASES = [
    (mode, toward, after)
    for toward, mode in itertools.product(PLACES, ("cut", "end", "stall"))
    for after in PLACES[toward]
]


@pytest.mark.parametrize(("mode", "toward", "after"), [*CASES, ("drip", "there", 0)])
async def test_faults_between_router_and_worker(mode: str, toward: str, after: int) -> None:
    async with FakeWorker() as worker:
        worker.script = checked_stream
        async with FaultProxy("127.0.0.1", worker.port, toward=toward) as proxy:
            one = [{"id": "w0", "url": proxy.url}]
            limits = WORKER_LIMITS if mode == "stall" else {}
            async with router(
                workers=one, ready=1, limits=limits, health={"interval_s": 60}
            ) as server:
                proxy.mode, proxy.after = mode, after
                async with asyncio.timeout(60):
                    outcome = await one_request(server.listen)
                assert outcome == "right" if mode == "drip" else outcome != "right"
                await nothing_is_left(server)
                proxy.mode = "pass"
                assert await one_request(server.listen) == "right"


@pytest.mark.parametrize(("mode", "toward", "after"), CASES)
async def test_faults_between_client_and_router(mode: str, toward: str, after: int) -> None:
    async with FakeWorker() as worker:
        worker.script = checked_stream
        limits = CLIENT_LIMITS if (mode, toward) == ("stall", "there") else {}
        async with router(worker, limits=limits) as server:
            async with FaultProxy(
                "127.0.0.1", server.listen.port, mode, after, toward=toward
            ) as proxy:
                near = Address("127.0.0.1", proxy.port)
                asking = asyncio.create_task(one_request(near))
                if mode == "stall" and toward == "back":
                    # The client waits for what the wire keeps: it must not hold up the worker.
                    workers = server.router.table.workers.values()
                    await until(lambda: sum(worker.served for worker in workers) == 1)
                    proxy.released.set()
                async with asyncio.timeout(60):
                    outcome = await asking
                if mode == "stall" and toward == "back":
                    assert outcome == "right", "it was all there, only later"
                elif mode == "stall":
                    # Refused for being slow; where nothing arrived at all, closed as idle.
                    assert outcome == ("refused" if after else "broken")
                else:
                    assert outcome == "broken"
                if mode != "stall":
                    await nothing_is_left(server)
                proxy.mode = "pass"
                assert await one_request(near) == "right"
            await nothing_is_left(server)


async def test_kept_connections_closed_at_any_moment_cost_no_request() -> None:
    """A worker which ends its kept connections as it likes: the end and a request cross."""
    served = itertools.count(1)

    async def closing(talk: Conversation) -> None:
        await talk.json({"n": next(served)})
        if len(worker.requests) % 3 == 0:
            talk.writer.write_eof()  # uvicorn's keep-alive timeout, without a word before
        if len(worker.requests) % 7 == 0:
            talk.cut()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = closing
        async with await Client.to(server.listen) as client:
            for index in range(200):
                await client.send(post(chat(f"{index}")))
                assert (await client.response()).status == 200
        assert server.router.table.workers["w0"].failures == 0


async def test_worker_that_accepts_and_resets_is_retried_elsewhere() -> None:
    """A service mesh's sidecar accepts for a pod which is gone."""

    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    listener = await asyncio.start_server(reset, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with FakeWorker() as good:
        both = [{"id": "w0", "url": f"http://127.0.0.1:{port}"}, {"id": "w1", "url": good.url}]
        async with router(workers=both, ready=1, health={"interval_s": 60}) as server:
            table = server.router.table
            table.probed(table.workers["w0"], "", False, 3)
            for index in range(10):
                answer = await ask(server, post(chat(f"{index}")))
                assert (answer.status, answer.headers["x-emberline-worker"]) == (200, "w1")
            name = "emberline_router_retries_total"
            assert await metric(server, name, reason="upstream_reset") >= 1
    listener.close()


async def test_slow_response_head_times_out() -> None:
    """Slowloris: one more header now and then, and never the end."""
    limits = {"header_timeout_s": 0.5}
    async with FakeWorker() as worker, router(worker, limits=limits) as server:
        async with await Client.to(server.listen) as client:
            answered = asyncio.create_task(client.response())
            client.writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n")

            async def drip() -> None:
                while not answered.done():
                    client.writer.write(b"x: y\r\n")
                    await asyncio.sleep(0.05)

            dripping = asyncio.create_task(drip())
            answer = await answered
            await dripping
            assert (answer.status, answer.code) == (408, "request_timeout")
        assert worker.requests == []


async def test_large_head_passes_and_an_oversized_one_is_rejected() -> None:
    async def echo(talk: Conversation) -> None:
        await talk.json({"size": len(talk.request.headers.get("x-large", ""))})

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = echo
        answer = await ask(server, post(chat("x"), x_large="y" * 30_000))
        assert answer.json == {"size": 30_000}
        answer = await ask(server, post(chat("x"), x_large="y" * 33_000))
        assert (answer.status, answer.code) == (431, "headers_too_large")
