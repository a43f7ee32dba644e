"""Keys, pins and the admin port: permissions and shown data."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from console.processkit import descriptors
from tests.routing.engine.harness import Client, admin, ask, chat, metric, post, router, until
from tests.support.descriptors import none_left
from tests.support.fake_worker import FakeWorker

DECISIONS = "emberline_router_routing_decisions_total"
ERRORS = "emberline_router_request_errors_total"
SECRET = "sk-very-secret"


def keys(folder: Path, **named: bool) -> str:
    """Key files hold `name: may pin`; the key itself is sk-very-secret-NAME."""
    entries = [
        {"id": name, "sha256": hashlib.sha256(f"{SECRET}-{name}".encode()).hexdigest(), "pin": pin}
        for name, pin in named.items()
    ]
    path = folder / "keys.json"
    new = folder / "keys.new"
    new.write_text(json.dumps({"keys": entries}))
    new.replace(path)
    return str(path)


def bearer(name: str) -> str:
    return f"Bearer {SECRET}-{name}"


async def test_only_health_is_served_without_a_key(tmp_path: Path) -> None:
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=keys(tmp_path, a=False)) as server:
            for path in ("/v1/chat/completions", "/metrics", "/v1/models", "/", "/health/x"):
                for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "x"}):
                    answer = await ask(server, post(chat("hi"), path, **header))
                    assert (answer.status, answer.code) == (401, "invalid_api_key")
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert SECRET not in answer.body.decode()
            for path in ("/health", "/ping"):
                assert (await ask(server, post(b"", path))).status == 200
            assert worker.requests == []
            assert await metric(server, ERRORS, reason="unauthorized") == 15
            answer = await ask(server, post(chat("hi"), authorization=bearer("a")))
            assert answer.status == 200
            assert "authorization" not in worker.requests[0].headers, "our key is not the worker's"
            shown = (await admin(server, "/decisions")).json["decisions"][0]
            assert shown["key_id"] == "a"


async def test_open_router_forwards_authorization() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        await ask(server, post(chat("hi"), authorization="Bearer theirs"))
        assert worker.requests[0].headers["authorization"] == "Bearer theirs"


async def test_anthropic_clients_are_served_in_their_form(tmp_path: Path) -> None:
    """Key in x-api-key, IDs in request-id, and errors in the form of Anthropic's SDK."""
    path = "/v1/messages"
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=keys(tmp_path, a=False)) as server:
            key = f"{SECRET}-a"
            answer = await ask(server, post(chat("hi"), path, x_api_key=key))
            assert answer.status == 200
            assert answer.headers["request-id"] == answer.headers["x-request-id"]
            assert "x-api-key" not in worker.requests[0].headers, "our key is not the worker's"
            assert "authorization" not in worker.requests[0].headers
            plain = await ask(server, post(chat("hi"), x_api_key=key))
            assert (plain.status, plain.headers.get("request-id")) == (200, None)
            wrong = {"x_api_key": key, "authorization": "Bearer wrong"}
            assert (await ask(server, post(chat("hi"), **wrong))).status == 401

            refused = await ask(server, post(chat("hi"), path, x_api_key="wrong"))
            assert refused.headers["request-id"] == refused.headers["x-request-id"]
            error = refused.json["error"]
            assert (refused.status, refused.json["type"]) == (401, "error")
            assert (error["type"], error["message"]) == (
                "authentication_error", "A valid API key is required.",
            )  # fmt: skip
            assert error["details"] == {"error_code": "invalid_api_key"}
            pinned = post(chat("hi"), f"{path}/count_tokens", x_api_key=key, x_emberline_pin="w0")
            assert (await ask(server, pinned)).json["error"]["type"] == "permission_error"
            shown = (await ask(server, post(chat("hi"), x_api_key="wrong"))).json
            assert set(shown) == {"error"}, "other paths have OpenAI's form"


@pytest.mark.parametrize(("wait_s", "retries"), [(60, True), (86_400, False)])
async def test_sdks_do_not_wait_for_a_budget(tmp_path: Path, wait_s: int, retries: bool) -> None:
    """Anthropic's SDK sleeps for Retry-After before it retries a request."""
    path = tmp_path / "keys.json"
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    until_s = time.time() + wait_s
    path.write_text(json.dumps({"keys": [{"id": "a", "sha256": digest, "spent_until": until_s}]}))
    async with FakeWorker() as worker, router(worker, api_keys_file=str(path)) as server:
        answer = await ask(server, post(chat("hi"), "/v1/messages", x_api_key=SECRET))
        assert (answer.status, answer.json["error"]["type"]) == (429, "rate_limit_error")
        assert answer.json["error"]["details"] == {"error_code": "insufficient_quota"}
        assert 0 < int(answer.headers["retry-after"]) <= wait_s + 1
        assert answer.headers.get("x-should-retry", "") == ("" if retries else "false")


async def test_rejected_body_is_not_read(tmp_path: Path) -> None:
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=keys(tmp_path, a=False)) as server:
            async with await Client.to(server.listen) as client:
                await client.send(post(chat("hi"))[:-5])
                assert (await client.response()).status == 401
                assert await client.closed()


async def test_pin_needs_permission_and_an_existing_worker(tmp_path: Path) -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        path = keys(tmp_path, console=True, user=False)
        async with router(one, two, api_keys_file=path) as server:

            async def pinned(key: str, worker: str) -> Any:
                request = post(chat("hi"), authorization=bearer(key), x_emberline_pin=worker)
                return await ask(server, request)

            assert (await pinned("user", "w1")).code == "pin_not_allowed"
            assert (await pinned("console", "w9")).code == "unknown_worker"
            assert one.requests == two.requests == []
            for worker in ("w1", "w1", "w0"):
                answer = await pinned("console", worker)
                assert answer.headers["x-emberline-worker"] == worker
            assert (len(one.requests), len(two.requests)) == (1, 2)
            assert "x-emberline-pin" not in one.requests[0].headers
            assert await metric(server, DECISIONS, reason="pinned") == 3
            assert await metric(server, ERRORS, reason="forbidden") == 1
            await two.stop()
            await until(lambda: not server.router.table.workers["w1"].up)
            answer = await pinned("console", "w1")
            assert (answer.status, answer.code) == (503, "no_healthy_worker")


async def test_pinned_request_is_never_rerouted() -> None:
    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:

        async def die(talk: Any) -> None:
            talk.cut()

        one.script = die
        answer = await ask(server, post(chat("hi"), x_emberline_pin="w0"))
        assert answer.code == "upstream_reset"
        assert two.requests == []


async def test_revoked_and_added_keys_apply(tmp_path: Path) -> None:
    path = keys(tmp_path, a=False)
    config = tmp_path / "router.json"
    async with FakeWorker() as worker:
        async with router(worker, path=config, api_keys_file=path) as server:
            assert (await ask(server, post(chat("x"), authorization=bearer("a")))).status == 200
            keys(tmp_path, b=False)
            server.reload(False)
            assert (await ask(server, post(chat("x"), authorization=bearer("a")))).status == 401
            assert (await ask(server, post(chat("x"), authorization=bearer("b")))).status == 200
            keys(tmp_path)
            server.reload(False)
            assert (await ask(server, post(chat("x"), authorization=bearer("b")))).status == 401


# -- the admin port


async def test_admin_pages() -> None:
    async with FakeWorker() as worker, router(worker, model="m", endpoint="demo") as server:
        assert (await admin(server, "/healthz")).json == {"status": "ok"}
        assert (await admin(server, "/readyz")).status == 200
        await ask(server, post(chat("x" * 1000)))
        workers = (await admin(server, "/workers")).json["workers"]
        assert workers == [
            {
                "id": "w0",
                "url": worker.url,
                "source": "config",
                "state": "up",
                "circuit": "closed",
                "slow_start": False,
                "cache_tokens": 0,
                "in_flight": 0,
                "peers_in_flight": 0,
                "served": 1,
                "failures": 0,
                "failed_requests": 0,
                "last_error": "",
                "in_flight_tokens": 0,
                "pace": 1.0,
            }
        ]
        assert (await admin(server, "/index")).json["workers"] == {"w0": 3}
        assert (await admin(server, "/config")).json["config"]["endpoint"] == "demo"
        assert len((await admin(server, "/decisions?limit=0")).json["decisions"]) == 0
        for target, method, status in (
            ("/nothing", "GET", 404),
            ("/decisions/none", "GET", 404),
            ("/decisions?limit=x", "GET", 400),
            ("/workers", "POST", 405),
            ("/drain", "GET", 405),
            ("/drain?worker=none", "POST", 404),
            ("/explain", "POST", 400),
        ):
            assert (await admin(server, target, method)).status == status
        assert (await admin(server, "/healthz", "HEAD")).body == b""


@pytest.mark.parametrize(
    "headers",
    [
        b"host: localhost\r\norigin: http://evil",
        b"host: localhost\r\nsec-fetch-site: same-origin",
        b"host: localhost\r\ncontent-type: text/plain",
        b"host: rebound.example:9090",
    ],
)
async def test_browsers_cannot_use_the_admin_port(headers: bytes) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        for line, refused in (
            (b"POST /drain", True),
            (b"GET /config", b"content-type" not in headers),
        ):
            async with await Client.to(server.admin) as client:
                await client.send(line + b" HTTP/1.1\r\n" + headers + b"\r\n\r\n")
                assert ((await client.response()).status == 403) is refused
        assert not server.router.draining


async def test_admin_port_survives_invalid_input() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        for wire, status in (
            (b"nonsense\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 20_000, 431),
            (b"POST /explain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n", 413),
        ):
            async with await Client.to(server.admin) as client:
                await client.send(wire)
                assert (await client.response()).status == status


async def test_explain_returns_the_ranking_and_sends_nothing() -> None:
    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        request = chat("a long story " * 100)
        home = (await ask(server, post(request))).headers["x-emberline-worker"]
        sizes = server.router.policy.sizes()
        count = len(one.requests) + len(two.requests)
        body = json.dumps(request).encode()
        found = (await admin(server, "/explain", "POST", body)).json
        assert (found["chosen"], found["reason"]) == (home, "prefix_hit")
        first, second = found["candidates"]
        assert first["worker"] == home
        assert first["matched"]["prefix"] > 0 == second["matched"]["prefix"]
        assert first["score"] < second["score"]
        other = json.dumps(chat("something new " * 100)).encode()
        await admin(server, "/explain", "POST", other)
        assert server.router.policy.sizes() == sizes
        assert len(one.requests) + len(two.requests) == count
        assert len((await admin(server, "/decisions")).json["decisions"]) == 1


async def test_draining_stops_new_picks_and_can_be_reverted() -> None:
    async with FakeWorker() as one, FakeWorker() as two, router(one, two) as server:
        assert (await admin(server, "/drain?worker=w0", "POST")).json["draining"] is True
        for index in range(4):
            answer = await ask(server, post(chat(f"{index}")))
            assert answer.headers["x-emberline-worker"] == "w1"
        states = [item["state"] for item in (await admin(server, "/workers")).json["workers"]]
        assert states == ["draining", "up"]
        await admin(server, "/drain?worker=w0&undo=1", "POST")
        assert len(server.router.table.eligible) == 2
        await admin(server, "/drain", "POST")
        assert (await admin(server, "/readyz")).status == 503
        assert (await ask(server, post(chat("still served")))).status == 200
        await admin(server, "/drain?undo=1", "POST")
        assert (await admin(server, "/readyz")).status == 200


SECRETS = ("tell nobody", "alice", "salty", SECRET)


@pytest.mark.parametrize("strategy", ["prefixaware", "session"])
async def test_no_secret_is_shown_or_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], strategy: str
) -> None:
    async with FakeWorker() as worker:
        async with router(
            worker, strategy=strategy, api_keys_file=keys(tmp_path, a=False)
        ) as server:
            body = chat("tell nobody " * 100, user="alice", cache_salt="salty")
            request = post(body, authorization=bearer("a"), x_session_id="alice")
            assert (await ask(server, request)).status == 200
            shown = b"".join(
                [
                    (await admin(server, page)).body
                    for page in ("/decisions", "/config", "/workers", "/index", "/metrics")
                ]
            ).decode()
            server.log.flush()
    printed = capfd.readouterr()
    for secret in SECRETS:
        assert secret not in shown
        assert secret not in printed.err + printed.out
    digest = hashlib.sha256(f"{SECRET}-a".encode()).hexdigest()
    assert digest not in shown


async def test_excess_connection_is_rejected_with_a_message() -> None:
    async with FakeWorker() as worker, router(worker, limits={"clients": 2}) as server:
        async with await Client.to(server.listen) as one, await Client.to(server.listen) as two:
            for client in (one, two):
                await client.send(post(chat("x")))
                assert (await client.response()).status == 200
            async with await Client.to(server.listen) as third:
                answer = await third.response()
                assert (answer.status, answer.code) == (503, "too_many_clients")
                assert await third.closed()
            await one.send(post(chat("x")))
            assert (await one.response()).status == 200
        await until(lambda: not server.router.clients)
        assert (await ask(server, post(chat("x")))).status == 200
        name = "emberline_router_request_errors_total"
        assert await metric(server, name, reason="too_many_clients") == 1
        bounds = (await admin(server, "/config")).json["bounds"]
        assert (bounds["clients"], bounds["workers"]) == (2, 1)
        assert bounds["bytes_for_each_client"] > 4 * 1024 * 1024


async def test_connections_are_limited_by_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client may need one more for its worker; some are kept for the router itself."""
    async with FakeWorker() as worker, router(worker) as server:
        kept = descriptors.RESERVE + 4
        monkeypatch.setattr(descriptors, "limit", lambda: kept + 5)
        assert server.router.most_clients == 2
        async with await Client.to(server.listen) as one, await Client.to(server.listen) as two:
            for client in (one, two):
                await client.send(post(chat("x")))
                assert (await client.response()).status == 200
            async with await Client.to(server.listen) as third:
                assert (await third.response()).code == "too_many_clients"
        monkeypatch.setattr(descriptors, "limit", lambda: 10)
        assert server.router.most_clients == 1


async def test_router_without_file_descriptors_blames_no_worker(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        (known,) = server.router.table.workers.values()
        async with await Client.to(server.listen) as client:
            with none_left():
                for _ in range(3):
                    await client.send(post(chat("x")))
                    answer = await client.response()
                    assert (answer.status, answer.code) == (503, "file_descriptors")
                known.probe_pool.idle.clear()  # they stay open: closing one would leave one
                for _ in range(5):
                    await server._health._probe(known)
                assert known.up
            await client.send(post(chat("x")))
            assert (await client.response()).status == 200
            server.log.flush()
            lines = capfd.readouterr().err
            assert lines.count("file_descriptors_exhausted") == 1, "once a minute"
            name = "emberline_router_request_errors_total"
            assert await metric(server, name, reason="file_descriptors") == 3
            assert await metric(server, "process_max_fds") > 0
            assert 0 < await metric(server, "process_open_fds") < descriptors.limit()
