"""Paths as clients mistype them, redirects of workers, and browsers' cross-origin requests."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import zlib
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import zstandard

from routing.engine import answer as answers
from routing.engine import exchange
from routing.engine.access import admission
from routing.engine.access.paths import likely_path
from tests.routing.engine.harness import Client, ask, chat, metric, post, router
from tests.support.fake_worker import Conversation, FakeWorker

ORIGIN = "https://app.example.com"


def key_file(folder: Path, **entries: dict[str, Any]) -> str:
    path = folder / "keys.json"
    digest = {name: hashlib.sha256(name.encode()).hexdigest() for name in entries}
    listed = [{"id": name, "sha256": digest[name], **more} for name, more in entries.items()]
    path.write_text(json.dumps({"keys": listed}))
    return str(path)


@pytest.mark.parametrize(
    ("path", "likely"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/completions", "/v1/completions"),
        ("//v1/models", "/v1/models"),
        ("/v1//chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/openai/v1/embeddings", "/v1/embeddings"),
        ("/v1/Chat/Completions", "/v1/chat/completions"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/api/chat", "/v1/chat/completions"),
        ("/api/generate", "/v1/completions"),
        ("/v1/./models", "/v1/models"),
        ("/v1/models//", "/v1/models"),
        ("/responses/resp_1/cancel", "/v1/responses/resp_1/cancel"),
        ("/V1/Responses/Resp_1A/Cancel", "/v1/responses/Resp_1A/cancel"),
        ("/v1beta/models/m:generateContent", ""),
        ("/", ""),
        ("/v1", ""),
        ("/v1/files", ""),
        ("/v1/batches", ""),
        ("/favicon.ico", ""),
    ],
)
async def test_unknown_path_is_answered_with_the_likely_one(
    tmp_path: Path, path: str, likely: str
) -> None:
    assert likely_path(path.encode()) == likely
    keys = key_file(tmp_path, user={})
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=keys, open_paths=[]) as server:
            async with await Client.to(server.listen) as client:
                for method in ("POST", "GET"):  # the connection is kept, its next request served
                    wire = post(chat("hi"), path, authorization="Bearer user")
                    await client.send(wire.replace(b"POST", method.encode(), 1))
                    answer = await client.response()
                    assert (answer.status, answer.code) == (404, "not_found"), method
                    error = answer.json["error"]
                    assert error["type"] == "invalid_request_error"
                    assert f"{method} {path}" in error["message"]
                    assert (f"Did you mean {likely}?" in error["message"]) is bool(likely)
                await client.send(post(chat("hi"), authorization="Bearer user"))
                assert (await client.response()).status == 200
            assert len(worker.requests) == 1
            without = await ask(server, post(chat("hi"), path))
            assert without.status == 401, "paths are not shown to strangers"


async def test_unknown_anthropic_path_has_openais_shape_and_head_no_body(tmp_path: Path) -> None:
    async with FakeWorker() as worker, router(worker, open_paths=[]) as server:
        line = b"HEAD /nothing HTTP/1.1\r\nhost: a\r\n\r\n"
        answer = await ask(server, line, "HEAD")
        assert (answer.status, answer.body) == (404, b"")


@pytest.mark.parametrize("path", ["/metrics", "/docs", "/docs/", "/openapi.json"])
async def test_refusal_of_a_control_path_names_the_setting(tmp_path: Path, path: str) -> None:
    keys = key_file(tmp_path, user={}, root={"admin": True})
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=keys, open_paths=[]) as server:
            answer = await ask(server, post(b"", path, authorization="Bearer user"))
            assert (answer.status, answer.code) == (403, "path_not_allowed")
            assert (
                f"add {path.rstrip('/')} to the router's open_paths"
                in answer.json["error"]["message"]
            )
            sleep = await ask(server, post(b"", "/sleep", authorization="Bearer user"))
            assert (sleep.status, "open_paths" in sleep.body.decode()) == (403, False)
            await ask(server, post(b"{}", "/sleep", authorization="Bearer root"))
            assert [request.target for request in worker.requests] == ["/sleep"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses/resp_1/cancel", b""),
        ("/v1/chat/completions", b"[]"),
        ("/v1/chat/completions", b'"text"'),
        ("/v1/completions", b"[" + b"1," * 300_000 + b"1]"),
        ("/v1/completions", b""),
        ("/v1/audio/speech", b"{}"),
        ("/v1/chat/completions/render", b"{}"),
    ],
)
async def test_requests_without_a_prompt_reach_the_worker_of_isolated_keys(
    tmp_path: Path, path: str, body: bytes
) -> None:
    keys = key_file(tmp_path, user={})
    async with FakeWorker() as worker:
        worker.script = lambda talk: talk.json({"error": "its own"}, 400)
        async with router(worker, api_keys_file=keys, open_paths=[]) as server:
            answer = await ask(server, post(body, path, authorization="Bearer user"))
            assert (answer.status, answer.json) == (400, {"error": "its own"})
            assert worker.requests[0].body == body


async def test_batch_of_chats_is_isolated(tmp_path: Path) -> None:
    keys = key_file(tmp_path, user={})
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=keys, open_paths=[]) as server:
            body = {"model": "m", "messages": [[{"role": "user", "content": "a"}]]}
            path = "/v1/chat/completions/batch"
            assert (await ask(server, post(body, path, authorization="Bearer user"))).status == 200
            assert worker.requests[0].json["cache_salt"]


# -- redirects


@pytest.mark.parametrize("path", ["/v1/models/", "/tokenize/", "/v1/chat/completions/?a=b/"])
async def test_slash_at_the_end_is_removed(path: str) -> None:
    async with FakeWorker() as worker, router(worker, open_paths=[]) as server:
        answer = await ask(server, post(chat("hi"), path))
        assert answer.status == 200
        if not path.startswith("/v1/models"):
            assert worker.requests[0].target == path.replace("/?", "?").removesuffix("/") + (
                "/" if "?" in path else ""
            )
        line = f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode()
        assert (await ask(server, line)).status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("http://{worker}/other/?a=b", "/other/?a=b"),
        ("//{worker}/other", "/other"),
        ("http://{worker}", "/"),
        ("/relative", "/relative"),
        ("http://10.0.0.1:8000/other", None),
        ("//elsewhere/", None),
        ("https://{worker}.evil/", None),
    ],
)
async def test_redirect_never_names_a_worker(status: int, place: str, shown: str | None) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        there = place.format(worker=f"127.0.0.1:{worker.port}")

        async def redirect(talk: Conversation) -> None:
            head = f"HTTP/1.1 {status} X\r\nLocation: {there}\r\ncontent-length: 0\r\n\r\n"
            await talk.send(head.encode())

        worker.script = redirect
        answer = await ask(server, post(chat("hi"), "/v1/anything/"))
        assert str(worker.port) not in answer.body.decode()
        if shown is None:
            assert (answer.status, answer.code) == (502, "upstream_protocol")
            assert "location" not in answer.headers
        else:
            assert (answer.status, answer.headers["location"]) == (status, shown)


# -- browsers


def preflight(origin: str, path: str = "/v1/chat/completions") -> bytes:
    return (
        f"OPTIONS {path} HTTP/1.1\r\nhost: a\r\norigin: {origin}\r\n"
        "access-control-request-method: POST\r\n"
        "access-control-request-headers: authorization,content-type,x-stainless-os\r\n\r\n"
    ).encode()


async def test_preflight_needs_no_key_and_answers_carry_headers(tmp_path: Path) -> None:
    more = {"api_keys_file": key_file(tmp_path, user={}), "allowed_origins": [ORIGIN]}
    async with FakeWorker() as worker, router(worker, open_paths=[], **more) as server:
        async with await Client.to(server.listen) as client:
            await client.send(preflight(ORIGIN))
            allowed = await client.response("OPTIONS")
            assert (allowed.status, allowed.body) == (200, b"")
            assert allowed.headers["access-control-allow-origin"] == ORIGIN
            assert "POST" in allowed.headers["access-control-allow-methods"]
            assert "x-stainless-os" in allowed.headers["access-control-allow-headers"]
            assert allowed.headers["vary"] == "Origin"
            await client.send(preflight("https://evil.example.com"))
            refused = await client.response("OPTIONS")
            assert (refused.status, refused.code) == (403, "origin_not_allowed")
            assert "access-control-allow-origin" not in refused.headers
        assert worker.requests == []
        for path, key, status in (
            ("/v1/chat/completions", "user", 200),
            ("/v1/chat/completions", "wrong", 401),
            ("/nothing", "user", 404),
            ("/sleep", "user", 403),
            ("/v1/models", "user", 200),
        ):
            wire = post(chat("hi"), path, authorization=f"Bearer {key}", origin=ORIGIN)
            answer = await ask(server, wire.replace(b"POST /v1/models", b"GET /v1/models"))
            assert answer.status == status, path
            assert answer.headers["access-control-allow-origin"] == ORIGIN, path
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
        other = post(chat("hi"), authorization="Bearer user", origin="https://evil.example.com")
        assert "access-control-allow-origin" not in (await ask(server, other)).headers
        assert "origin" not in worker.requests[0].headers, "its own answer would be a second one"


async def test_every_origin_is_allowed_by_default_once() -> None:
    async def own(talk: Conversation) -> None:
        await talk.send(
            b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\ncontent-length: 2\r\n\r\n{}"
        )

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = own
        answer = await ask(server, post(chat("hi"), origin="null"))
        assert answer.headers["access-control-allow-origin"] == "*"
        assert (await ask(server, preflight("http://localhost:5173"), "OPTIONS")).status == 200
        plain = await ask(server, b"OPTIONS /v1/completions HTTP/1.1\r\nhost: a\r\n\r\n", "OPTIONS")
        assert plain.status == 200
        assert len(worker.requests) == 2, "an OPTIONS request that is no preflight is forwarded"


# -- encodings of bodies

BODY = json.dumps(chat("hello " * 4000)).encode()


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("strategy", ["prefixaware", "roundrobin"])
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(BODY)),
        ("GZIP", gzip.compress(BODY[:100]) + gzip.compress(BODY[100:])),
        ("deflate", zlib.compress(BODY)),
        ("deflate", raw_deflate(BODY)),
        ("zstd", zstandard.ZstdCompressor().compress(BODY)),
        ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(BODY)),
        ("zstd", zstandard.compress(BODY[:99]) + zstandard.compress(BODY[99:])),
        ("identity", BODY),
    ],
)
async def test_compressed_body_is_decoded(strategy: str, encoding: str, packed: bytes) -> None:
    async with FakeWorker() as worker, router(worker, strategy=strategy) as server:
        wire = post(packed, content_encoding=encoding)
        assert (await ask(server, wire)).status == 200
        assert worker.requests[0].body == BODY
        assert "content-encoding" not in worker.requests[0].headers
        assert server.router.budget.used == 0


@pytest.mark.parametrize(
    ("encoding", "body", "status", "code"),
    [
        ("br", b"x", 415, "unsupported_encoding"),
        ("gzip, gzip", b"x", 415, "unsupported_encoding"),
        ("gzip", b"not gzip", 400, "bad_request"),
        ("gzip", gzip.compress(BODY)[:-9], 400, "bad_request"),
        ("deflate", zlib.compress(BODY) + b"tail", 400, "bad_request"),
        ("zstd", b"\x28\xb5\x2f\xfdxxxxxxxx", 400, "bad_request"),
        ("zstd", zstandard.compress(BODY)[:-3], 400, "bad_request"),
        ("zstd", zstandard.compress(BODY) + b"tail", 400, "bad_request"),
        (
            "zstd",
            zstandard.compress(BODY[:99]) + zstandard.compress(BODY[99:])[:-9],
            400,
            "bad_request",
        ),
        ("gzip", gzip.compress(b" " * 9_000_000), 413, "body_too_large"),
        ("gzip", b"".join(gzip.compress(b" " * 100_000) for _ in range(50)), 413, "body_too_large"),
        ("gzip", gzip.compress(b"") * 101, 400, "bad_request"),
        ("deflate", zlib.compress(b" " * 9_000_000), 413, "body_too_large"),
        ("zstd", zstandard.compress(b" " * 9_000_000), 413, "body_too_large"),
        ("gzip", gzip.compress(b'{"a":'), 400, "invalid_json"),
    ],
)
async def test_invalid_encodings_are_refused(
    encoding: str, body: bytes, status: int, code: str
) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        answer = await ask(server, post(body, content_encoding=encoding))
        assert (answer.status, answer.code) == (status, code)
        if status == 415:
            assert answer.headers["accept-encoding"] == "gzip, deflate, zstd"
        assert worker.requests == []
        assert server.router.budget.used == 0


async def test_byte_order_mark_is_removed() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        body = json.dumps(chat("hi")).encode()
        assert (await ask(server, post(b"\xef\xbb\xbf" + body))).status == 200
        assert worker.requests[0].body == body


@pytest.mark.parametrize("limited", [False, True])
async def test_invalid_json_is_refused_with_any_key(tmp_path: Path, limited: bool) -> None:
    keys = key_file(tmp_path, user={"models": ["m"]} if limited else {})
    async with FakeWorker() as worker, router(worker, api_keys_file=keys) as server:
        for body in (
            b'{"model": "m", "messages": [}',
            b'{"model": "m", "temperature": NaN}',
            b'{"model": "m", "prompt": "\\ud800"}',
            '{"model": "m"}'.encode("utf-16"),
            '{"model": "m"}'.encode("utf-32-le"),
            b'{"model": "m"} {}',
            b'{"model": "m", "a": "' + b"x" * 20_000,
        ):
            answer = await ask(server, post(body, authorization="Bearer user"))
            assert (answer.status, answer.code) == (400, "invalid_json"), body[:40]
            assert "(byte " in answer.json["error"]["message"]
        assert worker.requests == []
        assert await metric(
            server, "emberline_router_request_errors_total", reason="invalid_json"
        ) == 7  # fmt: skip


# -- what callers learn of others


async def test_equal_request_ids_of_callers_stay_apart() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        for _ in range(2):
            answer = await ask(server, post(chat("hi"), x_request_id="same"))
            assert answer.headers["x-request-id"] == "same"
        first, second = (request.headers["x-request-id"] for request in worker.requests)
        assert first != second
        assert first.startswith("same-")


async def test_ids_do_not_count_requests() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        answers = [await ask(server, post(chat("hi"))) for _ in range(20)]
        for name in ("x-emberline-decision", "x-request-id"):
            numbers = [int(answer.headers[name].rpartition("-")[2], 16) for answer in answers]
            assert len(set(numbers)) == 20
            steps = {after - before for before, after in itertools.pairwise(numbers)}
            assert len(steps) == 19, "no two steps are equal"


async def test_limited_key_sees_its_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = perf_counter()
    for module in (admission, exchange, answers):  # nothing refills in between
        monkeypatch.setattr(module, "perf_counter", lambda: now)
    limits = {"requests_per_minute": 2, "tokens_per_minute": 100_000}
    keys = key_file(tmp_path, user={"limits": limits}, free={})
    async with FakeWorker() as worker, router(worker, api_keys_file=keys) as server:
        left = []
        for _ in range(3):
            answer = await ask(server, post(chat("hi"), authorization="Bearer user"))
            assert answer.headers["x-ratelimit-limit-requests"] == "2"
            assert answer.headers["x-ratelimit-limit-tokens"] == "100000"
            assert 0 < int(answer.headers["x-ratelimit-remaining-tokens"]) < 100_000
            assert 0 < float(answer.headers["x-ratelimit-reset-requests"].removesuffix("s")) <= 60
            left.append((answer.status, answer.headers["x-ratelimit-remaining-requests"]))
        assert left == [(200, "1"), (200, "0"), (429, "0")]
        free = await ask(server, post(chat("hi"), authorization="Bearer free"))
        assert not any(name.startswith("x-ratelimit") for name in free.headers)


@pytest.mark.parametrize(
    "more", ['"stream_options": {"continuous_usage_stats": true}, ', '"stream_options": null, ', ""]
)
async def test_added_fields_change_no_other_byte(more: str) -> None:
    """Numbers, order of keys and offsets stay as the caller wrote them."""
    body = (
        '{ "temperature": 1.0, "big": 123456789012345678901234567890, "e": 1e5, "dup": 1, "dup": 2,'
        f' {more}"stream": true, "messages": [{{"role": "user", "content": "\\u00e9 hi"}}] }} '
    ).encode()
    async with FakeWorker() as worker, router(worker) as server:
        assert (await ask(server, post(body))).status == 200
        sent = worker.requests[0].body
        before = body.rstrip()[:-1]
        assert sent.startswith(before)
        assert json.loads(sent)["stream_options"] == {"include_usage": True}
