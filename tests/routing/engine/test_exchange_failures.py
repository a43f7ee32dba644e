"""Failing workers, clients and connections: retries, visible errors and counters."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from routing.engine.fleet.worker_connection import MAX_INTERIM_RESPONSES
from routing.engine.observe.decisions import has_failed
from tests.routing.engine.harness import Client, admin, ask, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker, event
from tests.support.faultproxy import FaultProxy
from tests.support.ports import free_ports

ERRORS = "emberline_router_request_errors_total"
RETRIES = "emberline_router_retries_total"


class HangingPool:
    """A worker's connections; each attempt to open one runs `hang`."""

    def __init__(self, pool: Any, hang: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._pool = pool
        self._hang = hang

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def connect(self, *_: object) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._hang())


async def die(talk: Conversation) -> None:
    talk.cut()


async def die_after_head(talk: Conversation) -> None:
    """As vLLM killed while it computes the prompt: the head is out, no token is."""
    await talk.stream_head()
    talk.cut()


async def die_after_size(talk: Conversation) -> None:
    """A chunk's size is framing, not yet an answer."""
    await talk.stream_head()
    await talk.send(b"1f")
    await talk.send(b"\r\n")
    talk.cut()


async def refuse(talk: Conversation) -> None:
    await talk.json({"error": "busy"}, 503)


def plain(fake: FakeWorker) -> int:
    return len(fake.requests)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (die, "upstream_reset"),
        (die_after_head, "upstream_reset"),
        (die_after_size, "upstream_reset"),
        (refuse, "upstream_5xx"),
    ],
)
async def test_failure_before_the_first_byte_is_retried_elsewhere(script, reason) -> None:
    async with FakeWorker() as bad, FakeWorker() as good, router(bad, good) as server:
        bad.script = script
        async with await Client.to(server.listen) as client:
            for index in range(6):
                await client.send(post(chat(f"{index}", stream=True)))
                answer = await client.response()
                assert answer.status == 200
                assert answer.headers["x-emberline-worker"] == "w1"
                assert answer.body.endswith(b"[DONE]\n\n")
        assert plain(bad) >= 1
        assert plain(good) == 6
        assert await metric(server, RETRIES, reason=reason) == plain(bad)
        decisions = (await admin(server, "/decisions")).json["decisions"]
        again = [item for item in decisions if item["reason"] == "retry"]
        assert len(again) == plain(bad)
        assert all((item["attempts"], item["error"]) == (2, "") for item in again)
        for worker in server.router.table.workers.values():
            assert (worker.load, worker.in_flight) == (0, 0)


async def test_retry_ignores_a_match_on_the_failed_worker() -> None:
    async with FakeWorker() as a, FakeWorker() as b, router(a, b) as server:
        request = post(chat("a long prompt " * 200))
        home = (await ask(server, request)).headers["x-emberline-worker"]
        (a if home == "w0" else b).script = refuse
        answer = await ask(server, request)
        assert answer.status == 200
        assert answer.headers["x-emberline-worker"] != home


async def test_worker_that_refuses_connections_is_down_at_once() -> None:
    async with FakeWorker() as bad, FakeWorker() as good:
        async with router(bad, good, health={"interval_s": 60}) as server:
            await bad.stop()
            for index in range(4):
                assert (await ask(server, post(chat(f"{index}")))).status == 200
            assert await metric(server, RETRIES, reason="upstream_connect") == 1
            assert await metric(server, "emberline_router_worker_up", worker="w0") == 0
            states = (await admin(server, "/workers")).json["workers"]
            assert [item["state"] for item in states] == ["down", "up"]
            assert "refused" in states[0]["last_error"].lower()


async def test_error_states_that_no_worker_is_left() -> None:
    async with FakeWorker() as only, router(only) as server:
        only.script = die
        answer = await ask(server, post(chat("x")))
        assert (answer.status, answer.code) == (502, "upstream_reset")
        await only.stop()
        answer = await ask(server, post(chat("x")))
        assert answer.status in (502, 503)
        await until(lambda: not server.router.table.eligible)
        answer = await ask(server, post(chat("x")))
        assert (answer.status, answer.code) == (503, "no_healthy_worker")
        assert answer.headers["retry-after"] == "1"
        assert await metric(server, ERRORS, reason="no_healthy_worker") == 1
        only.script = None
        await only.start()
        await until(lambda: server.router.table.eligible)
        assert (await ask(server, post(chat("x")))).status == 200


async def test_attempts_are_bounded() -> None:
    async with FakeWorker() as a, FakeWorker() as b, FakeWorker() as c:
        async with router(a, b, c) as server:
            for fake in (a, b, c):
                fake.script = die
            answer = await ask(server, post(chat("x")))
            assert answer.code == "upstream_reset"
            assert plain(a) + plain(b) + plain(c) == 2


async def test_retries_have_a_budget() -> None:
    async with FakeWorker() as a, FakeWorker() as b, router(a, b) as server:
        a.script = b.script = refuse
        server.path.retries.budget = 3.0
        for index in range(20):
            assert (await ask(server, post(chat(f"{index}")))).status == 503
        # 3 in hand, and a fifth of 20 requests
        assert await metric(server, RETRIES, reason="upstream_5xx") <= 7


async def test_a_500_is_forwarded_and_ejects_no_worker() -> None:
    async def error(talk: Conversation) -> None:
        await talk.json({"error": {"message": "theirs"}}, 500)

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = error
        for _ in range(5):
            answer = await ask(server, post(chat("x")))
            assert (answer.status, answer.json["error"]["message"]) == (500, "theirs")
        assert await metric(server, ERRORS, reason="upstream_5xx") == 5
        assert await metric(server, "emberline_router_worker_circuit_state", worker="w0") == 0


async def test_failing_worker_is_ejected_and_returns() -> None:
    async with FakeWorker() as bad, FakeWorker() as good, router(bad, good) as server:
        bad.script = die
        for index in range(12):
            assert (await ask(server, post(chat(f"{index}")))).status == 200
        assert plain(bad) <= 4, "three failures in a row (and one after a pause) are enough"
        bad.script = None
        await until(lambda: len(server.router.table.eligible) == 2, "back after its pause")
        served = plain(bad)
        await until_served(server, bad, served)


async def until_served(server, fake: FakeWorker, before: int) -> None:
    for index in range(10):
        assert (await ask(server, post(chat(f"again {index}")))).status == 200
    assert plain(fake) > before


async def test_ejected_workers_are_used_when_all_are_ejected() -> None:
    async with FakeWorker() as only, router(only) as server:
        only.script = die
        for _ in range(4):
            await ask(server, post(chat("x")))
        assert await metric(server, "emberline_router_worker_circuit_state", worker="w0") == 1
        only.script = None
        assert (await ask(server, post(chat("x")))).status == 200
        assert await metric(server, "emberline_router_worker_circuit_state", worker="w0") == 0


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_truncated_stream_is_visible_to_the_client(version: bytes) -> None:
    async def cut(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await seen.wait()
        talk.cut()

    seen = asyncio.Event()
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = cut
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True)).replace(b"HTTP/1.1", version))
            await client.head()
            async with asyncio.timeout(60):
                await client.reader.readuntil(b"\n\n")
                seen.set()
                if version == b"HTTP/1.1":
                    rest = await client.reader.read(-1)
                    assert b"0\r\n\r\n" not in rest, "a broken stream must not look whole"
                else:  # without chunks only a reset shows it
                    with pytest.raises(ConnectionResetError):
                        await client.reader.read(-1)
        assert await metric(server, ERRORS, reason="broken_stream") == 1
        found = (await admin(server, "/decisions")).json["decisions"][0]
        assert (found["error"], found["status"], found["attempts"]) == ("broken_stream", 200, 1)
        assert plain(worker) == 1, "never sent again after its first byte"


async def test_worker_failure_counts_match_the_decisions() -> None:
    """Error answers of the worker, broken streams and attempts without any answer alike."""

    async def refuse(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 422 No\r\ncontent-length: 0\r\n\r\n")

    async def cut(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this")
        talk.writer.write_eof()

    async def silent(talk: Conversation) -> None:
        talk.writer.close()

    async with FakeWorker() as worker, router(worker) as server:
        assert (await ask(server, post(chat("x")))).status == 200
        for script in (refuse, cut, silent):
            worker.script = script
            with contextlib.suppress(asyncio.IncompleteReadError):
                await ask(server, post(chat("x")))
        records = (await admin(server, "/decisions")).json["decisions"]
        failed = [one for one in records if has_failed(one["status"], one["error"])]
        assert [one["error"] for one in failed] == ["upstream_reset", "broken_stream", ""]
        (shown,) = (await admin(server, "/workers")).json["workers"]
        assert shown["failed_requests"] == len(failed)


async def test_truncated_response_is_visible_to_the_client() -> None:
    async def short(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this")
        talk.writer.write_eof()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = short
        with pytest.raises(asyncio.IncompleteReadError):
            await ask(server, post(chat("x")))
        assert await metric(server, ERRORS, reason="broken_stream") == 1


@pytest.mark.parametrize("after", [0, 30, 150])
async def test_cut_connections_are_retried_or_visible(after: int) -> None:
    """Wherever the wire is cut: a whole answer from elsewhere, or an end that is seen."""
    async with FakeWorker(words=50) as one, FakeWorker(words=50) as two:
        async with FaultProxy("127.0.0.1", one.port) as proxy:
            both = [{"id": "w0", "url": proxy.url}, {"id": "w1", "url": two.url}]
            async with router(workers=both, ready=2, health={"interval_s": 60}) as server:
                proxy.mode, proxy.after = "cut", after
                whole = 0
                for index in range(6):
                    try:
                        answer = await ask(server, post(chat(f"{index}", stream=True)))
                    except (asyncio.IncompleteReadError, ConnectionResetError):
                        continue
                    assert answer.body.count(b"data: ") == 51
                    whole += 1
                broken = await metric(server, ERRORS, reason="broken_stream")
                assert whole + broken == 6
                assert whole >= 3


async def test_slow_worker_changes_nothing() -> None:
    async with FakeWorker() as worker:
        async with FaultProxy("127.0.0.1", worker.port, mode="drip") as proxy:
            async with router(workers=[{"id": "w0", "url": proxy.url}], ready=1) as server:
                answer = await ask(server, post(chat("x", stream=True)))
                assert answer.body.endswith(b"data: [DONE]\n\n")
                plain_answer = await ask(server, post(chat("x")))
                assert plain_answer.json["model"] == "m"


async def test_stalled_worker_times_out_and_is_aborted() -> None:
    async with FakeWorker() as worker:
        async with FaultProxy("127.0.0.1", worker.port) as proxy:
            limits = {"response_timeout_s": 0.2}
            both = [{"id": "w0", "url": proxy.url}]
            async with router(
                workers=both, ready=1, limits=limits, health={"interval_s": 60}
            ) as server:
                proxy.mode = "stall"
                answer = await ask(server, post(chat("x", stream=True)))
                assert (answer.status, answer.code) == (504, "upstream_timeout")
                await worker.until(lambda: plain(worker) >= 1)  # the proxy may be late
                assert plain(worker) == 1, "never sent again: it may still be computed"
                assert await metric(server, ERRORS, reason="upstream_timeout") == 1


@pytest.mark.parametrize("when", ["before the head", "in the stream"])
async def test_client_disconnect_stops_the_worker(when: str) -> None:
    async def endless(talk: Conversation) -> None:
        if when == "in the stream":
            await talk.stream_head()
            await talk.chunk(event("one"))
        await asyncio.Event().wait()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = endless
        client = await Client.to(server.listen)
        await client.send(post(chat("x", stream=True)))
        await worker.until(lambda: plain(worker) == 1)
        if when == "in the stream":
            await client.head()
        client.writer.close()
        await worker.until(lambda: len(worker.cancelled) == 1)
        await until(lambda: server.router.table.workers["w0"].in_flight == 0)
        assert server.router.table.workers["w0"].load == 0
        assert await metric(server, ERRORS, reason="client_cancelled") == 1


async def test_client_disconnect_while_connecting_leaves_nothing() -> None:
    async with FakeWorker() as fake, router(fake) as server:
        worker = server.router.table.workers["w0"]
        hanging = asyncio.Event()
        cancelled = asyncio.Event()

        async def hang() -> None:
            hanging.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        worker.pool = HangingPool(worker.pool, hang)
        client = await Client.to(server.listen)
        await client.send(post(chat("x")))
        async with asyncio.timeout(60):
            await hanging.wait()
            client.writer.close()
            await cancelled.wait()
        await until(lambda: worker.in_flight == 0)


async def test_kept_connection_closed_by_the_worker_is_no_error() -> None:
    """uvicorn closes idle connections; a request in flight then is retried once."""
    gone = 0

    async def once(talk: Conversation) -> None:
        nonlocal gone
        if talk.request.headers["x-request-id"].startswith("second-") and not gone:
            gone = 1
            talk.cut()
            return
        await talk.json({})

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = once
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x"), x_request_id="first"))
            assert (await client.response()).status == 200
            await client.send(post(chat("x"), x_request_id="second"))
            answer = await client.response()
            assert answer.status == 200
        found = (await admin(server, "/decisions")).json["decisions"][0]
        assert found["attempts"] == 1
        assert await metric(server, RETRIES, reason="stale_connection") == 1
        assert server.router.table.workers["w0"].failures == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
async def test_worker_that_violates_http_is_rejected(answer: bytes) -> None:
    async def broken(talk: Conversation) -> None:
        await talk.send(answer)
        await talk.gone.wait()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = broken
        found = await ask(server, post(chat("x")))
        assert (found.status, found.code) == (502, "upstream_protocol")


async def test_interim_responses_are_dropped_and_extra_bytes_close_the_connection() -> None:
    async def odd(talk: Conversation) -> None:
        await talk.send(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n"
        )

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = odd
        for _ in range(2):
            assert (await ask(server, post(chat("x")))).body == b"ok"
        assert server.router.table.workers["w0"].pool.idle == []


@pytest.mark.parametrize("at_once", [True, False])
async def test_flood_of_interim_responses_is_an_error(at_once: bool) -> None:
    """In one write as much as one by one; the other worker answers, and the reason is counted."""
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"

    async def flood(talk: Conversation) -> None:
        for _ in range(1 if at_once else 100):
            await talk.send(interim * 10_000 if at_once else interim)
        await talk.gone.wait()

    async with FakeWorker() as bad, FakeWorker() as good, router(bad, good) as server:
        bad.script = flood
        answers = [await ask(server, post(chat(f"x{index}"))) for index in range(4)]
        assert {answer.status for answer in answers} == {200}
        assert bad.requests, "it was tried"
        assert await metric(server, RETRIES, reason="upstream_protocol") == len(bad.requests)


async def test_interim_responses_are_counted_per_request() -> None:
    async def patient(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_INTERIM_RESPONSES - 1))
        await talk.json({})

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = patient
        for _ in range(3):
            assert (await ask(server, post(chat("x")))).status == 200


async def test_slow_reader_slows_the_worker() -> None:
    """Back-pressure: what a client does not read is not collected here."""
    sent = 0
    stop = asyncio.Event()

    async def firehose(talk: Conversation) -> None:
        nonlocal sent
        await talk.stream_head()
        while not stop.is_set() and sent < 200_000_000:
            await talk.chunk(b"x" * 65_536)
            sent += 65_536
        await talk.stream_end()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = firehose
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True)))
            await client.head()
            paused = server.router.clients
            await until(lambda: any(item._write_paused for item in paused), "paused")
            # Sockets' and transports' buffers may still fill; then the worker must stand still.
            before = -1
            while before != sent:
                before = sent
                for _ in range(50):
                    await asyncio.sleep(0.002)
            assert sent < 40_000_000
            buffered = next(iter(paused)).transport.get_write_buffer_size()
            assert buffered < 1_000_000
            stop.set()
            async with asyncio.timeout(60):
                await client._chunked()
            worker.script = None
            await client.send(post(chat("after")))
            assert (await client.response()).status == 200


async def test_client_that_never_reads_is_disconnected_and_the_worker_stops() -> None:
    async def firehose(talk: Conversation) -> None:
        await talk.stream_head()
        while True:
            await talk.chunk(b"x" * 65_536)

    async with FakeWorker() as worker, router(worker, limits={"stall_timeout_s": 0.3}) as server:
        worker.script = firehose
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x", stream=True)))
            await worker.until(lambda: len(worker.cancelled) == 1)
        assert await metric(server, ERRORS, reason="stalled_client") == 1


async def test_upload_to_a_slow_worker_is_paused() -> None:
    """Back-pressure the other way: a body the worker does not read is not collected here."""
    taken = asyncio.Event()
    accepted = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"GET /" in head:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            return
        accepted.set()
        await taken.wait()
        await reader.readexactly(30_000_000)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    listener = await asyncio.start_server(slow, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    limits = {"hold_bytes": 1024, "body_bytes": 40_000_000}
    one = [{"id": "w0", "url": f"http://127.0.0.1:{port}"}]
    async with router(workers=one, ready=1, limits=limits) as server:
        async with await Client.to(server.listen) as client:
            sending = asyncio.create_task(client.send(post(b"x" * 30_000_000, "/upload")))
            async with asyncio.timeout(60):
                await accepted.wait()
            connections = server.router.clients
            await until(lambda: any(item._upload_paused for item in connections), "paused")
            exchange = next(iter(connections))._exchange
            assert exchange is not None
            assert exchange._answer.connection.transport.get_write_buffer_size() < 2_000_000
            assert not sending.done()
            taken.set()
            async with asyncio.timeout(60):
                await sending
            assert (await client.response()).status == 200
    listener.close()


async def test_worker_that_responds_before_the_upload_ends() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"GET /" in head:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            return
        writer.write(b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\nno")
        await reader.read(-1)

    listener = await asyncio.start_server(early, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    one = [{"id": "w0", "url": f"http://127.0.0.1:{port}"}]
    async with router(workers=one, ready=1, limits={"hold_bytes": 1024}) as server:
        async with await Client.to(server.listen) as client:
            await client.send(post(b"x" * 100_000, "/upload")[:50_000])
            answer = await client.response()
            assert (answer.status, answer.body) == (400, b"no")
            assert answer.headers["connection"] == "close"
        assert server.router.table.workers["w0"].pool.idle == []
    listener.close()


async def test_uploads_are_never_sent_twice() -> None:
    async with FakeWorker() as a, FakeWorker() as b:
        async with router(a, b, limits={"hold_bytes": 1024}) as server:
            a.script = b.script = die
            answer = await ask(server, post(b"x" * 10_000, "/upload"))
            assert answer.status == 502
            assert plain(a) + plain(b) == 1


async def test_start_without_reachable_workers_is_not_fatal() -> None:
    (port,) = free_ports(1)
    async with router(workers=[{"id": "w0", "url": f"http://127.0.0.1:{port}"}], ready=0) as server:
        assert (await admin(server, "/readyz")).status == 503
        assert (await admin(server, "/healthz")).status == 200
        assert (await ask(server, post(chat("x")))).code == "no_healthy_worker"
