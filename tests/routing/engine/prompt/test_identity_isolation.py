"""Cache isolation: keys have separate KV caches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.routing.engine.harness import admin, ask, chat, metric, post, router
from tests.routing.engine.test_router_access import bearer, keys
from tests.support.fake_worker import FakeWorker


@pytest.fixture
def two_keys(tmp_path: Path) -> Iterator[str]:
    file = Path(keys(tmp_path, a=False, b=False, c=False))
    entries = json.loads(file.read_text())["keys"]
    for entry in entries[:2]:
        entry["group"] = "g"
    file.write_text(json.dumps({"keys": entries}))
    yield str(file)


async def salts(server: Any, worker: FakeWorker, body: Any, path: str = "") -> list[Any]:
    found = []
    for key in "abc":
        wire = post(body, path or "/v1/chat/completions", authorization=bearer(key))
        assert (await ask(server, wire)).status == 200
        found.append(worker.requests[-1].json.get("cache_salt"))
    return found


@pytest.mark.parametrize(("isolation", "caches"), [("key", 3), ("group", 2), ("shared", 1)])
@pytest.mark.parametrize("strategy", ["prefixaware", "roundrobin"])
async def test_keys_have_separate_caches(
    two_keys: str, isolation: str, caches: int, strategy: str
) -> None:
    more = {"api_keys_file": two_keys, "cache_isolation": isolation, "strategy": strategy}
    async with FakeWorker() as worker, router(worker, **more) as server:
        first = await salts(server, worker, chat("hi"))
        assert len(set(first)) == caches
        assert await salts(server, worker, chat("hi", stream=True)) == first
        own = await salts(server, worker, chat("hi", cache_salt="x"))
        assert len(set(own)) == caches
        if isolation == "shared":
            assert (first[0], own[0]) == (None, "x")
        else:
            assert not set(own) & set(first)
            assert all(len(salt) == 32 for salt in first + own)
            assert await salts(server, worker, chat("hi", cache_salt=first[1])) != first


async def test_router_finds_a_prefix_under_its_key(two_keys: str) -> None:
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, api_keys_file=two_keys) as server:
            for key in "aba":
                await ask(server, post(chat("hi " * 900), authorization=bearer(key)))
            last, other, first = (await admin(server, "/decisions")).json["decisions"]
            assert (last["reason"], last["chosen"]) == ("prefix_hit", first["chosen"])
            assert other["predicted_cached_tokens"] == 0
            assert set(other["prefix"]).isdisjoint(first["prefix"])
            body = json.dumps(chat("hi " * 900)).encode()
            for key, known in (("a", True), ("c", False)):
                ranking = (await admin(server, f"/explain?key={key}", "POST", body)).json
                assert (ranking["predicted_cached_tokens"] > 0) == known
            assert (await admin(server, "/explain?key=none", "POST", body)).status == 400


@pytest.mark.parametrize("chunked", [False, True])
async def test_streamed_body_is_isolated_too(two_keys: str, chunked: bool) -> None:
    body = b" " + json.dumps(chat("hi " * 3000)).encode()
    more = {"api_keys_file": two_keys, "limits": {"hold_bytes": 4096}}
    async with FakeWorker() as worker, router(worker, **more) as server:
        wire = post(body, authorization=bearer("a"))
        if chunked:
            head = wire.partition(b"\r\n\r\n")[0]
            head = head.replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
            parts = (body[at : at + 1000] for at in range(0, len(body), 1000))
            wire = head + b"\r\n\r\n"
            wire += b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        assert (await ask(server, wire)).status == 200
        salt = worker.requests[-1].json.pop("cache_salt")
        assert salt == (await salts(server, worker, chat("hi")))[0]
        assert worker.requests[0].json == {"cache_salt": salt, **json.loads(body)}


@pytest.mark.parametrize("size", [10, 9000])
@pytest.mark.parametrize(("path", "start"), [("/cohere/v2/chat", b"{"), ("/v2/embed", b" {")])
async def test_body_that_cannot_be_isolated_is_rejected(
    two_keys: str, path: str, start: bytes, size: int
) -> None:
    body = start + b'"a": "' + b"x" * size + b'"}'
    more = {"api_keys_file": two_keys, "limits": {"hold_bytes": 4096}}
    async with FakeWorker() as worker, router(worker, **more) as server:
        answer = await ask(server, post(body, path, authorization=bearer("a")))
        assert (answer.status, answer.code) == (400, "cache_isolation")
        assert await metric(
            server, "emberline_router_request_errors_total", reason="cache_isolation"
        )
        assert not any(body in one.body for one in worker.requests)
    async with FakeWorker() as worker:
        worker.script = lambda talk: talk.json({})
        async with router(worker, **more, cache_isolation="shared") as server:
            assert (await ask(server, post(body, path, authorization=bearer("a")))).status == 200
