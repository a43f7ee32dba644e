"""Keys, their paths and models: units first, then a router."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from routing.engine.access import keys as keys_module
from routing.engine.access.keys import KeyRing, check_model
from routing.engine.access.paths import PathRules
from routing.engine.config import ConfigError, Key, parse, parse_keys
from routing.engine.errors import Refusal
from routing.engine.http.bodies import parse_body
from tests.routing.engine.harness import ask, chat, metric, post, router
from tests.support.fake_worker import FakeWorker

SECRET = "sk-very-secret"
ERRORS = "emberline_router_request_errors_total"


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def key(name: str, secret: bytes, **more: Any) -> Key:
    return Key(name, hashlib.sha256(secret).hexdigest(), **more)


def key_file(folder: Path, **entries: dict[str, Any]) -> str:
    """Entries by name; the key itself is sk-very-secret-NAME."""
    data = [{"id": name, "sha256": digest(f"{SECRET}-{name}"), **entries[name]} for name in entries]
    new = folder / "keys.new"
    new.write_text(json.dumps({"keys": data}))
    new.replace(folder / "keys.json")
    return str(folder / "keys.json")


def bearer(name: str) -> str:
    return f"Bearer {SECRET}-{name}"


def refused(ring: KeyRing, header: bytes) -> bool:
    try:
        ring.check(header)
    except Refusal as refusal:
        assert refusal.code == "invalid_api_key"
        return True
    return False


# -- the ring


def test_only_valid_keys_are_accepted() -> None:
    ring = KeyRing((key("a", b"one"), key("b", b"two", pin=True)))
    for _ in range(2):  # found, then remembered
        assert (ring.check(b"Bearer two").id, ring.check(b"Bearer two").pin) == ("b", True)
        assert ring.check(b"bearer one").id == "a"
        for wrong in (
            b"", b"Bearer", b"Bearer ", b"Bearer three", b"Basic one", b"one", b"Bearer on",
            b"Bearer " + hashlib.sha256(b"one").hexdigest().encode(),
        ):  # fmt: skip
            assert refused(ring, wrong)


def test_empty_key_file_rejects_all_and_no_key_file_accepts_all() -> None:
    assert refused(KeyRing(()), b"Bearer x")
    assert KeyRing(None).check(b"").id == ""


def test_valid_headers_are_hashed_once_and_invalid_ones_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = KeyRing((key("a", b"one"),))
    hashed: list[bytes] = []
    sha256 = hashlib.sha256

    def counting(data: bytes) -> Any:
        hashed.append(data)
        return sha256(data)

    monkeypatch.setattr(hashlib, "sha256", counting)
    for _ in range(3):
        ring.check(b"Bearer one")
        assert refused(ring, b"Bearer two")
    assert hashed.count(b"one") == 1
    assert hashed.count(b"two") == 3


def test_key_cache_is_bounded() -> None:
    ring = KeyRing((key("a", b"one"),))
    for spaces in range(400):
        for scheme in (b"Bearer", b"bearer", b"BEARER", b"bEARER"):
            ring.check(scheme + b" " * (spaces + 1) + b"one")
    assert len(ring._seen) <= keys_module.CACHED_HEADERS
    before = len(ring._seen)
    ring.check(b"Bearer one" + b" " * 1000)
    assert len(ring._seen) == before


def test_cached_keys_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = KeyRing((key("a", b"one", expires=1000.0),))
    now = 999.0
    monkeypatch.setattr(time, "time", lambda: now)
    assert ring.check(b"Bearer one").id == "a"
    now = 1000.0
    assert refused(ring, b"Bearer one")


def test_key_entries_are_parsed_completely() -> None:
    entry = {
        "id": "a", "sha256": digest("x"), "admin": True, "expires": 5, "models": ["m"],
        "limits": {"tokens_per_minute": 9, "weight": 2},
    }  # fmt: skip
    (found,) = parse_keys({"keys": [entry]})
    assert (found.admin, found.expires, found.models) == (True, 5.0, frozenset({"m"}))
    assert (found.limits.tokens_per_minute, found.limits.max_in_flight) == (9, None)
    twin = {**entry, "sha256": digest("y")}
    assert len(parse_keys({"keys": [entry, twin]})) == 2, "a key being replaced has two hashes"
    with pytest.raises(ConfigError, match="differ from those of another key"):
        parse_keys({"keys": [entry, {**twin, "limits": {}}]})


# -- paths


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions", "/v1/audio/transcriptions", "/v1/responses/abc/cancel",
        "/v2/rerank", "/tokenize", "/%74okenize", "/inference/v1/generate",
        "/v1/models/org%2Fname", "/version",
    ],
)  # fmt: skip
def test_inference_paths_need_no_admin_key(path: str) -> None:
    assert not PathRules().needs_admin(path.encode())


@pytest.mark.parametrize(
    "path",
    [
        "/metrics", "/sleep", "/wake_up", "/pause", "/resume", "/collective_rpc", "/server_info",
        "/reset_prefix_cache", "/load_lora_adapter", "/v1/load_lora_adapter", "/update_weights",
        "/v1/unload_lora_adapter", "/v1/%6coad_lora_adapter", "/v1/load_lora_adapter#x", "/",
        "/v1/load_lora_adapter/", "/v1/../sleep", "/v1/%2e%2e/sleep", "/v1//load_lora_adapter",
        "//sleep", "/v1/./sleep", "/v1/x%00", "/v1\\sleep", "/docs", "/openapi.json", "/v1", "*",
        "/something_new", "/v1/..", "/v1/%2e",
    ],
)  # fmt: skip
def test_other_paths_need_an_admin_key(path: str) -> None:
    assert PathRules().needs_admin(path.encode())
    assert PathRules(("/plugin/*",)).needs_admin(path.encode())
    assert not PathRules(("*",)).needs_admin(path.encode())


def test_paths_can_be_opened_by_configuration() -> None:
    paths = PathRules(("/metrics", "/plugin/*"))
    for path in (b"/metrics", b"/plugin/a", b"/plugin/a/b"):
        assert not paths.needs_admin(path)
    for path in (b"/metrics/x", b"/plugins", b"/plugin/sleep", b"/plugin/../sleep"):
        assert paths.needs_admin(path)


def test_path_cache_is_bounded() -> None:
    paths = PathRules()
    for index in range(5000):
        paths.needs_admin(b"/v1/%d" % index)
    assert len(paths._known) <= 1024


@pytest.mark.parametrize("value", ["/metrics", [1], ["metrics"], ["/a*b"], ["/a b"], ["**"]])
def test_invalid_open_paths_are_rejected(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"listen": "127.0.0.1:1", "open_paths": value}, Path())
    assert caught.value.field == "open_paths"


# -- models


def test_model_is_parsed_as_the_worker_parses_it() -> None:
    allowed = frozenset({"good"})
    for body in (b"", b'{"model": "good"}', b'{"model": "bad", "model": "good"}'):
        check_model(allowed, body, parse_body(body))
    for body, code in (
        (b'{"model": "bad"}', "model_not_found"),
        (b'{"model": "good", "model": "bad"}', "model_not_found"),
        (b'{"metadata": {"model": "good"}, "model": "bad"}', "model_not_found"),
        (b'{"metadata": {"model": "good"}}', "model_not_named"),
        (b'{"model": 1}', "model_not_named"),
        (b'{"model": "good", "x": NaN}', "model_not_named"),
        ('{"model": "good"}'.encode("utf-16"), "model_not_named"),
        (b"--x\r\n", "model_not_named"),
        (None, "model_not_named"),
    ):
        with pytest.raises(Refusal) as caught:
            check_model(allowed, body, parse_body(body or b""))
        assert caught.value.code == code


# -- in a router


@pytest.mark.parametrize("strategy", ["prefixaware", "roundrobin"])
async def test_key_reaches_only_its_models(tmp_path: Path, strategy: str) -> None:
    file = key_file(tmp_path, all={}, some={"models": ["m"]}, none={"models": []})
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=file, strategy=strategy) as server:

            async def send_request(name: str, body: Any) -> tuple[int, str]:
                answer = await ask(server, post(body, authorization=bearer(name)))
                return answer.status, answer.code if answer.status != 200 else ""

            other = {**chat("hi"), "model": "other", "metadata": {"model": "m"}}
            assert await send_request("all", other) == (200, "")
            assert await send_request("some", chat("hi")) == (200, "")
            assert await send_request("some", other) == (404, "model_not_found")
            assert await send_request("some", b"no json") == (400, "invalid_json")
            assert await send_request("some", b"[]") == (403, "model_not_named")
            assert await send_request("none", chat("hi")) == (404, "model_not_found")
            assert len(worker.requests) == 2
            assert await metric(server, ERRORS, reason="forbidden") == 3
            for name, shown in (("some", ["m"]), ("none", [])):
                request = f"GET /v1/models HTTP/1.1\r\nhost: a\r\nauthorization: {bearer(name)}"
                listed = (await ask(server, request.encode() + b"\r\n\r\n")).json["data"]
                assert [model["id"] for model in listed] == shown


async def test_body_too_large_to_buffer_is_not_checked_for_its_model(tmp_path: Path) -> None:
    file = key_file(tmp_path, some={"models": ["m"]})
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=file, limits={"hold_bytes": 1000}) as server:
            answer = await ask(server, post(chat("x" * 5000), authorization=bearer("some")))
            assert (answer.status, answer.code) == (403, "model_not_named")
            assert worker.requests == []


async def test_worker_control_needs_an_admin_key(tmp_path: Path) -> None:
    file = key_file(tmp_path, user={}, root={"admin": True})
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=file, open_paths=[]) as server:
            for path in ("/sleep", "/metrics", "/v1/load_lora_adapter"):
                answer = await ask(server, post(b"", path, authorization=bearer("user")))
                assert (answer.status, answer.code) == (403, "path_not_allowed")
                assert worker.requests == []
            assert await metric(server, ERRORS, reason="forbidden") == 3
            answer = await ask(server, post(b"", "/sleep", authorization=bearer("root")))
            assert answer.status == 200
            assert worker.requests[0].target == "/sleep"


async def test_open_router_keeps_worker_control_closed() -> None:
    async with FakeWorker() as worker:
        async with router(worker, open_paths=[]) as server:
            assert (await ask(server, post(b"", "/sleep"))).code == "path_not_allowed"
        async with router(worker, open_paths=["/sleep"]) as server:
            assert (await ask(server, post(b"", "/sleep"))).status == 200
            assert (await ask(server, post(b"", "/pause"))).status == 403


async def test_an_expired_key_is_refused(tmp_path: Path) -> None:
    file = key_file(tmp_path, old={"expires": time.time() - 1}, new={"expires": time.time() + 60})
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=file) as server:
            answer = await ask(server, post(chat("hi"), authorization=bearer("old")))
            assert (answer.status, answer.code) == (401, "invalid_api_key")
            assert "expired" in answer.json["error"]["message"]
            assert (await ask(server, post(chat("hi"), authorization=bearer("new")))).status == 200
