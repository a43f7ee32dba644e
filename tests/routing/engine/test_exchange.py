"""Requests through a real router to real sockets: bytes, framing, limits, picks."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from routing.engine.policies.prefixaware import MAX_SHARE, STEP
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
from tests.support.fake_worker import Conversation, FakeWorker, event

LONG = "Once upon a time there was a very long prompt. " * 60


async def test_response_is_forwarded_with_added_headers() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        answer = await ask(server, post(chat("hi"), x_custom="kept", x_request_id="mine"))
        assert answer.status == 200
        assert answer.json["model"] == "m"
        assert answer.headers["x-emberline-worker"] == "w0"
        assert answer.headers["x-request-id"] == "mine"
        seen = worker.requests[0]
        assert seen.json == chat("hi")
        assert seen.headers["x-custom"] == "kept"
        assert seen.headers["x-request-id"].startswith("mine-")
        assert seen.headers["host"] == f"127.0.0.1:{worker.port}"
        found = (await admin(server, f"/decisions/{answer.headers['x-emberline-decision']}")).json
        assert (found["chosen"], found["status"], found["request_id"]) == ("w0", 200, "mine")


async def test_every_path_and_method_is_forwarded() -> None:
    async def echo(talk: Conversation) -> None:
        request = talk.request
        await talk.json({"method": request.method, "target": request.target})

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = echo
        for method, target in (
            ("GET", "/version"),
            ("POST", "/tokenize?x=%20y"),
            ("DELETE", "/v1/responses/abc"),
            ("OPTIONS", "/v1/anything"),
        ):
            line = f"{method} {target} HTTP/1.1\r\nhost: a\r\n\r\n"
            assert (await ask(server, line.encode(), method)).json == {
                "method": method,
                "target": target,
            }
        absolute = await ask(server, b"GET http://router:1/version HTTP/1.1\r\nhost: a\r\n\r\n")
        assert absolute.json["target"] == "/version"


async def test_stream_is_forwarded_byte_for_byte() -> None:
    chunks = [
        b"data: {}\n\n",
        b"\r\n0\r\n\r\n",  # looks like an end, is payload
        bytes(range(256)) * 300,
        "data: é漢\n\n".encode(),
        b"data: [DONE]\n\n",
    ]

    async def stream(talk: Conversation) -> None:
        await talk.stream_head()
        for chunk in chunks:
            await talk.chunk(chunk)
        await talk.send(b"0\r\nx-trailer: 1\r\n\r\n")

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = stream
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("hi", **WITH_USAGE)))
            status, headers = await client.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            wanted = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
            wanted += b"0\r\nx-trailer: 1\r\n\r\n"
            async with asyncio.timeout(60):
                assert await client.reader.readexactly(len(wanted)) == wanted
            worker.script = None
            await client.send(post(chat("again")))
            assert (await client.response()).status == 200


async def test_events_are_forwarded_immediately() -> None:
    """Each event reaches the client before the worker makes the next."""
    step = asyncio.Event()

    async def stream(talk: Conversation) -> None:
        await talk.stream_head()
        for index in range(3):
            await talk.chunk(event(f"{index}"))
            await step.wait()
            step.clear()
        await talk.stream_end()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = stream
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("hi", stream=True)))
            await client.head()
            for index in range(3):
                async with asyncio.timeout(60):
                    data = await client.reader.readuntil(b"\n\n\r\n")
                assert event(f"{index}") in data
                step.set()


async def test_a_request_split_at_every_byte() -> None:
    body = json.dumps(chat("hi")).encode()
    plain = post(body)
    chunked = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
        + b"%x\r\n%b\r\n1\r\n \r\n0\r\n\r\n" % (len(body), body)
    )
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(6, 1, 1)  # TCP_NODELAY: one segment for each part
            for wire in (plain, chunked):
                for at in range(1, len(wire), 3):
                    await client.send(wire[:at])
                    await asyncio.sleep(0)
                    await client.send(wire[at:])
                    assert (await client.response()).status == 200
                for at in range(len(wire)):
                    await client.send(wire[at : at + 1])
                    await asyncio.sleep(0)
                assert (await client.response()).status == 200
        assert {request.body.strip() for request in worker.requests} == {body}
        assert worker.connections < 60, "connections to the worker are kept (checks count too)"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            wire = b"".join(
                post(chat(f"n{index}"), x_request_id=f"r{index}") for index in range(20)
            )
            health = b"GET /health HTTP/1.1\r\nhost: a\r\nx-request-id: h\r\n\r\n"
            await client.send(health + wire + health * 200)
            assert (await client.response()).headers["x-request-id"] == "h"
            for index in range(20):
                answer = await client.response()
                assert answer.headers["x-request-id"] == f"r{index}"
            for _ in range(200):
                assert (await client.response()).status == 200
        order = [request.json["messages"][0]["content"] for request in worker.requests]
        assert order == [f"n{index}" for index in range(20)]


async def test_flood_of_pipelined_requests_is_not_buffered() -> None:
    release = asyncio.Event()

    async def slow(talk: Conversation) -> None:
        await release.wait()
        await talk.json({})

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = slow
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x")))
            await worker.until(lambda: len(worker.requests) == 1)
            client.writer.write(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n" * 250_000)
            (connection,) = server.router.clients
            await until(lambda: connection._read_paused, "the router stops reading")
            assert len(connection._buffer) < 1_000_000
            release.set()
            for _ in range(30_000):  # more than was held: it reads again
                assert (await client.response()).status == 200


async def test_flood_with_unread_responses_is_not_buffered() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            client.writer.write(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n" * 250_000)
            (connection,) = await until(lambda: server.router.clients)
            await until(lambda: connection._read_paused, "the router stops reading")
            assert len(connection._buffer) < 1_000_000
            assert connection.transport.get_write_buffer_size() < 1_000_000
            for _ in range(40_000):
                assert (await client.response()).status == 200


async def test_large_body_is_streamed_completely() -> None:
    body = bytes(range(256)) * 4096 * 3
    async with FakeWorker() as worker, router(worker, limits={"hold_bytes": 65_536}) as server:
        sizes = (len(body), 70_000)
        for size in sizes:
            sized = post(body[:size], "/v1/audio/transcriptions")
            assert (await ask_script(server, worker, sized)).status == 200
            chunks = b"".join(
                b"%x\r\n%b\r\n" % (len(part), part)
                for part in (body[at : min(at + 9000, size)] for at in range(0, size, 9000))
            )
            chunked = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + chunks
            assert (await ask_script(server, worker, chunked + b"0\r\n\r\n")).status == 200
        assert [len(request.body) for request in worker.requests] == [
            len(body), len(body), 70_000, 70_000,
        ]  # fmt: skip
        assert worker.requests[0].body == worker.requests[1].body == body
        assert worker.requests[0].headers["content-length"] == str(len(body))
        assert worker.requests[1].headers["transfer-encoding"] == "chunked"


async def ask_script(server, worker, wire):
    async def ok(talk: Conversation) -> None:
        await talk.json({})

    worker.script = ok
    return await ask(server, wire)


async def test_expect_continue() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            body = json.dumps(chat("hi")).encode()
            wire = post(body, expect="100-continue")
            await client.send(wire[: -len(body)])
            status, _ = await client.head()
            assert status == 100
            await client.send(body)
            assert (await client.response()).status == 200
        assert "expect" not in worker.requests[0].headers


async def test_head_requests_and_responses_without_a_body() -> None:
    async def head(talk: Conversation) -> None:
        if talk.request.method == "HEAD":
            await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n")
        else:
            await talk.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = head
        async with await Client.to(server.listen) as client:
            for method in ("HEAD", "GET", "HEAD"):
                await client.send(f"{method} /x HTTP/1.1\r\nhost: a\r\n\r\n".encode())
                answer = await client.response(method)
                assert answer.status == (200 if method == "HEAD" else 204)
                assert answer.headers.get("content-length") == ("500" if method == "HEAD" else None)
            await client.send(b"HEAD /health HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await client.response("HEAD")).status == 200


async def test_response_ended_by_close_closes_the_client() -> None:
    async def until_close(talk: Conversation) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        talk.writer.write_eof()
        await talk.gone.wait()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = until_close
        answer = await ask(server, post(chat("hi")))
        assert (answer.body, answer.headers["connection"]) == (b"all of it", "close")


async def test_http_1_0_gets_no_chunks() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        wire = post(chat("hi", stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0")
        answer = await ask(server, wire)
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert answer.body.startswith(b"data: ")


async def test_connection_close_is_honoured() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("hi"), connection="close"))
            answer = await client.response()
            assert answer.headers["connection"] == "close"
            assert await client.closed()


@pytest.mark.parametrize(
    ("wire", "status", "code"),
    [
        (b"GET / HTTP/1.1\nhost: a\n\n", 400, "bad_request"),
        (b"\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 40_000, 431, "headers_too_large"),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 33_000 + b"\r\n\r\n",
            431,
            "headers_too_large",
        ),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2000\r\n\r\n", 413, "body_too_large"),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
            + b"5dc\r\n" + b"x" * 1500 + b"\r\n",
            413,
            "body_too_large",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            400,
            "bad_request",
        ),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", 501, "unsupported"),
    ],
)  # fmt: skip
async def test_invalid_requests_are_answered_and_the_connection_ends(
    wire: bytes, status: int, code: str
) -> None:
    async with FakeWorker() as worker, router(worker, limits={"body_bytes": 1024}) as server:
        async with await Client.to(server.listen) as client:
            await client.send(wire)
            answer = await client.response()
            assert (answer.status, answer.code) == (status, code)
            assert answer.headers["connection"] == "close"
            assert await client.closed()
        assert worker.requests == []
        assert (
            await metric(server, "emberline_router_request_errors_total", reason="bad_request") == 1
        )


async def test_rejected_upload_gets_its_response() -> None:
    """The client is in the middle of sending; a reset would throw the answer away."""
    async with FakeWorker() as worker, router(worker, limits={"body_bytes": 100_000}) as server:
        async with await Client.to(server.listen) as client:
            client.writer.write(post(b"x" * 5_000_000))
            assert (await client.response()).code == "body_too_large"
            async with asyncio.timeout(60):
                await client.writer.drain()
                assert await client.reader.read() == b"", "an end, not a reset"


async def test_bytes_after_a_rejection_are_no_request() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            inner = post(chat("smuggled"))
            await client.send(
                b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n"
                b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + inner
            )
            assert (await client.response()).status == 400
            assert await client.closed()
        assert worker.requests == []


async def test_silent_clients_are_disconnected() -> None:
    # Under TLS the handshake has the time of a header.
    limits = {"header_timeout_s": 0.5, "body_timeout_s": 0.1, "idle_timeout_s": 1.0}
    async with FakeWorker() as worker, router(worker, limits=limits) as server:
        async with await Client.to(server.listen) as idle:
            assert await idle.closed()
        for part in (b"GET / HT", post(chat("hi"))[:-3]):
            async with await Client.to(server.listen) as slow:
                await slow.send(part)
                assert (await slow.response()).code == "request_timeout"
                assert await slow.closed()
        assert worker.requests == []


async def test_models_and_health_are_served_by_the_router() -> None:
    async with FakeWorker("base") as one, FakeWorker("base") as two:
        async with router(one, two) as server:
            await until(
                lambda: all(worker.models for worker in server.router.table.workers.values())
            )
            models = (await ask(server, b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")).json
            assert [model["id"] for model in models["data"]] == ["base"]
            for path in (b"/health", b"/ping"):
                assert (
                    await ask(server, b"GET " + path + b" HTTP/1.1\r\nhost: a\r\n\r\n")
                ).status == 200
            one.healthy = two.healthy = False
            await until(lambda: not server.router.table.eligible)
            for path in (b"/health", b"/ping"):
                assert (
                    await ask(server, b"GET " + path + b" HTTP/1.1\r\nhost: a\r\n\r\n")
                ).status == 503
            models = (await ask(server, b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")).json
            assert [model["id"] for model in models["data"]] == ["base"], "known models stay listed"
        assert one.requests == two.requests == []


async def test_one_prefix_uses_one_worker_and_many_prefixes_all_workers() -> None:
    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        async with await Client.to(server.listen) as client:
            homes: dict[str, set[str]] = {}
            for turn in range(3):
                for name in "abcdefghijklmnop":
                    await client.send(post(chat(f"{name}{LONG}", turn=turn)))
                    answer = await client.response()
                    homes.setdefault(name, set()).add(answer.headers["x-emberline-worker"])
        assert all(len(home) == 1 for home in homes.values())
        assert min(len(one.requests), len(two.requests)) >= 3
        name = "emberline_router_routing_decisions_total"
        assert await metric(server, name, reason="prefix_hit", strategy="prefixaware") == 32
        assert await metric(server, name, reason="fallback_no_match") == 16


async def test_load_spreads_even_one_prefix() -> None:
    """While a worker still computes, more of the same prefix may go elsewhere: it is cheaper."""
    release = asyncio.Event()

    async def slow(talk: Conversation) -> None:
        await release.wait()
        await talk.json({})

    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        one.script = two.script = slow
        clients = [await Client.to(server.listen) for _ in range(40)]
        for index, client in enumerate(clients):
            await client.send(post(chat(LONG + f"unlike tail {index} " * 40)))
        await until(lambda: len(one.requests) + len(two.requests) == 40)
        assert min(len(one.requests), len(two.requests)) >= 10
        loads = [worker.load for worker in server.router.table.workers.values()]
        assert min(loads) > 0
        release.set()
        for client in clients:
            assert (await client.response()).status == 200
            await client.__aexit__()
        for worker in server.router.table.workers.values():
            assert (worker.load, worker.in_flight) == (0, 0)


@pytest.mark.parametrize(
    ("where", "headers", "body"),
    [
        ("header:X-Session-Id", {"x_session_id": "alice"}, {}),
        ("cookie:sid", {"cookie": "a=b; sid=alice; c=d"}, {}),
        ("body:user", {}, {"user": "alice"}),
    ],
)
async def test_sessions_stick(where: str, headers: dict[str, str], body: dict[str, str]) -> None:
    async with FakeWorker() as a, FakeWorker() as b, FakeWorker() as c:
        async with router(a, b, c, strategy="session", session_key=where) as server:
            used = set()
            for index in range(6):
                answer = await ask(server, post(chat(f"{index}", **body), **headers))
                used.add(answer.headers["x-emberline-worker"])
            assert len(used) == 1
            name = "emberline_router_routing_decisions_total"
            assert await metric(server, name, reason="session_sticky") == 6
            shown = (await admin(server, "/decisions")).body.decode()
            assert "alice" not in shown
            assert '"session":"' in shown
            answer = await ask(server, post(chat("no session")))
            assert await metric(server, name, reason="fallback_no_match") == 1


async def test_round_robin_takes_turns() -> None:
    async with FakeWorker() as a, FakeWorker() as b, FakeWorker() as c:
        async with router(a, b, c, strategy="roundrobin") as server:
            for _ in range(9):
                await ask(server, post(chat("same")))
            assert [len(fake.requests) for fake in (a, b, c)] == [3, 3, 3]
            assert await metric(
                server, "emberline_router_routing_decisions_total", reason="round_robin"
            ) == 9  # fmt: skip


async def test_tokens_and_cache_hits_are_read_from_usage() -> None:
    async with FakeWorker() as worker, router(worker, model="m") as server:
        worker.cached_tokens = 640
        request = chat(LONG, stream=True, stream_options={"include_usage": True})
        for _ in range(2):
            answer = await ask(server, post(request))
        prompt = len(worker.requests[0].body) // 4
        found = (await admin(server, f"/decisions/{answer.headers['x-emberline-decision']}")).json
        assert (found["prompt_tokens"], found["prompt_tokens_estimated"]) == (prompt, False)
        assert (found["cached_tokens"], found["completion_tokens"]) == (640, 3)
        assert 0.9 * prompt < found["predicted_cached_tokens"] <= prompt
        assert 0 < found["ttft_s"] <= found["duration_s"]
        prefix = "emberline_router_"
        assert await metric(server, f"{prefix}prompt_tokens_total", model="m") == 2 * prompt
        assert await metric(server, f"{prefix}cached_prompt_tokens_total", model="m") == 1280
        assert await metric(server, f"{prefix}completion_tokens_total", model="m") == 6
        assert await metric(
            server, f"{prefix}time_to_first_token_seconds_count", model="m", cache="full"
        ) + await metric(
            server, f"{prefix}time_to_first_token_seconds_count", model="m", cache="partial"
        ) == 2  # fmt: skip
        assert await metric(server, f"{prefix}request_duration_seconds_count", model="m") == 2
        assert await metric(server, f"{prefix}requests_total", model="m", code="200") == 2


@pytest.mark.parametrize("delta", [b"event: response.output_item.added\ndata: {}\n\n", b"x\n\n"])
async def test_ttft_of_a_responses_stream_ends_with_its_first_token(delta: bytes) -> None:
    """vLLM sends `response.created` before it computes the prompt."""
    computed = asyncio.Event()

    async def respond(talk: Conversation) -> None:
        await talk.stream_head()
        for name in (b"created", b"in_progress"):
            await talk.chunk(b'event: response.%b\ndata: {"a":1}\n\n' % name)
        await computed.wait()
        await talk.chunk(delta)
        await talk.stream_end()

    async with FakeWorker() as worker, router(worker, model="m") as server:
        worker.script = respond
        began = time.perf_counter()
        async with await Client.to(server.listen) as client:
            await client.send(post({"model": "m", "input": "x", "stream": True}, "/v1/responses"))
            _, headers = await client.head()
            await client.reader.readuntil(b"response.in_progress")
            seen = time.perf_counter()
            await until(lambda: time.perf_counter() - seen > seen - began, "a longer computation")
            least = time.perf_counter() - seen
            computed.set()
            await client.reader.readuntil(b"\r\n0\r\n")
        found = (await admin(server, f"/decisions/{headers['x-emberline-decision']}")).json
        assert least < found["ttft_s"] <= found["duration_s"]
        name = "emberline_router_inter_token_latency_seconds_count"
        assert await metric(server, name, model="m") == 0, "one token"


async def test_the_policy_learns_from_reported_tokens() -> None:
    text = post(chat("word " * 4000))
    async with FakeWorker() as worker:
        workers = [{"id": "w0", "url": worker.url, "cache_tokens": 1_000_000}]
        async with router(worker, workers=workers) as server:
            policy = server.router.policy
            await ask(server, text)
            assert policy.share("w0") == 0.0, "nothing of it was known"
            await ask(server, text)
            assert policy.share("w0") == MAX_SHARE * (1 - STEP), "all of it was, and none cached"
            worker.cached_tokens = len(worker.requests[-1].body) // 4
            await ask(server, text)
            assert policy.share("w0") > MAX_SHARE * (1 - STEP)


async def test_usage_calibrates_the_bytes_per_token() -> None:
    async with FakeWorker() as worker, router(worker, model="m") as server:
        body = json.dumps(chat(LONG)).encode()
        before = (await admin(server, "/explain", "POST", body)).json["prompt_tokens"]
        await ask(server, post(body))
        after = (await admin(server, "/explain", "POST", body)).json["prompt_tokens"]
        assert before < after
        assert after == pytest.approx(len(worker.requests[0].body) // 4, abs=1)


async def test_usage_of_a_plain_response_is_read() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        worker.cached_tokens = 5
        answer = await ask(server, post(chat("hi")))
        found = (await admin(server, f"/decisions/{answer.headers['x-emberline-decision']}")).json
        assert found["cached_tokens"] == 5
        assert found["ttft_s"] is None, "only a stream has a first token that can be seen"
