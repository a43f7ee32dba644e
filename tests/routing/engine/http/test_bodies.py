"""Exhausting requests: rejected by size, parsed in slices, bounded in memory."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.engine.config import ConfigError, LimitsConfig, SessionKey, parse
from routing.engine.errors import Refusal
from routing.engine.http import bodies
from routing.engine.http.bodies import BufferBudget, ReadPace
from routing.engine.prompt import canonical
from routing.engine.prompt.identity import Identifier, Identity
from routing.engine.tokens.usage import BytesPerToken
from tests.routing.engine.harness import (
    Client,
    Response,
    admin,
    ask,
    becomes,
    chat,
    metric,
    post,
    router,
    until,
)
from tests.support.fake_worker import Conversation, FakeWorker

CHAT = "/v1/chat/completions"
ERRORS = "emberline_router_request_errors_total"
LIMITS = {"messages": 50, "parts": 60, "json_values": 4000}
PLAIN = {"role": "user", "content": "x"}


def chat_body(content: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


def padded(body: dict[str, Any], size: int = 0) -> bytes:
    """At least so large, by a text which makes no values."""
    text = json.dumps(body)
    return (text[:-1] + f', "user": "{"," * max(size - len(text), 0)}"}}').encode()


TOO_MANY: dict[str, tuple[str, dict[str, Any], str, str | None]] = {
    "messages": (CHAT, {"messages": [PLAIN] * 51}, "too_many_messages", "messages"),
    "empty messages": (CHAT, {"messages": [{}] * 51}, "too_many_messages", "messages"),
    "no objects": (CHAT, {"messages": [[]] * 51}, "too_many_messages", "messages"),
    "parts": (CHAT, chat_body([{"type": "file"}] * 61), "too_many_parts", "messages.content"),
    "parts in two messages": (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "text"}] * 31}] * 2},
        "too_many_parts",
        "messages.content",
    ),
    "tools": (CHAT, chat_body("x") | {"tools": [{}] * 51}, "too_many_messages", "tools"),
    "input items": ("/v1/responses", {"input": [PLAIN] * 51}, "too_many_messages", "input"),
    "anthropic": ("/v1/messages", chat_body([{"type": "image"}] * 61), "too_many_parts", None),
    "system parts": (
        "/v1/messages",
        {"messages": [PLAIN], "system": [{"type": "text", "text": "x"}] * 61},
        "too_many_parts",
        None,
    ),
    "prompts": ("/v1/completions", {"prompt": ["x"] * 51}, "too_many_messages", "prompt"),
    "token arrays": ("/v1/completions", {"prompt": [[1]] * 51}, "too_many_messages", "prompt"),
    "embeddings": ("/v1/embeddings", {"input": ["x"] * 51}, "too_many_messages", "input"),
}
COMPLEX: dict[str, dict[str, Any]] = {
    "ids": {"prompt": [1] * 4001},
    "stop": {"stop": ["x"] * 4001},
    "keys": {"logit_bias": {str(index): 1 for index in range(1001)}},
    "objects": {"metadata": [{}] * 1001},
    "arrays": {"metadata": [[]] * 1001},
    "escapes": {"x": ['\\\\"'] * 4001},
}


@pytest.mark.parametrize("size", [0, 20_000, 300_000])
@pytest.mark.parametrize("name", TOO_MANY)
async def test_excess_entries_are_rejected_with_field_value_and_limit(name: str, size: int) -> None:
    path, body, code, param = TOO_MANY[name]
    async with FakeWorker() as worker, router(worker, limits=LIMITS) as server:
        answer = await ask(server, post(padded(body, size), path))
        assert (answer.status, answer.code) == (400, code)
        error = answer.json["error"]
        assert error["type"] == "invalid_request_error"
        assert param is None or error["param"] == param
        limit = "50" if code == "too_many_messages" else "60"
        assert limit in error["message"] and f"limits.{code[9:]}" in error["message"]
        assert any(count in error["message"] for count in ("51", "61", "62"))
        assert await metric(server, ERRORS, reason=code) == 1
        assert worker.requests == []


@pytest.mark.parametrize("name", COMPLEX)
async def test_excess_values_are_rejected_before_parsing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeWorker() as worker, router(worker, limits=LIMITS) as server:
        forbid_parsing(monkeypatch)
        answer = await ask(server, post(padded(chat_body("x") | COMPLEX[name], 300_000)))
        assert (answer.status, answer.code) == (400, "body_too_complex")
        assert "4000" in answer.json["error"]["message"]
        assert await metric(server, ERRORS, reason="body_too_complex") == 1
        assert worker.requests == []


@pytest.mark.parametrize("size", [0, 20_000, 300_000])
async def test_bodies_at_the_limit_are_served(size: int) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "x"}]}] * 50}
    async with FakeWorker() as worker, router(worker, limits=LIMITS) as server:
        assert (await ask(server, post(padded(body, size)))).status == 200


async def test_values_inside_strings_do_not_count() -> None:
    """A prompt about JSON, with every kind of escape at every place of a slice."""
    text = '{"a": [1, 2, "x\\\\"]}, \\" ' * 20_000
    async with FakeWorker() as worker, router(worker, limits=LIMITS) as server:
        assert (await ask(server, post(chat(text)))).status == 200


# -- reading in slices


@given(st.integers(0, 200), st.sampled_from((7, 16, 33, 61, 64)))
def test_small_bodies_are_classified_by_objects_not_by_text(offset: int, period: int) -> None:
    """Wherever the objects begin: no pattern hides them from the sample for long."""
    assert bodies.is_small(b"{" * bodies.SMALL_BYTES)
    assert bodies.is_small(b" " * offset + b"x" * (bodies.MEDIUM_BYTES - offset))
    assert not bodies.is_small(b"x" * (bodies.MEDIUM_BYTES + 1))
    crowded = b" " * offset + (b"{" + b"x" * (period - 1)) * (200_000 // period)
    assert not all(bodies.is_small(crowded) for _ in range(60))


def driven(reading: Any) -> Identity:
    while True:
        try:
            reading.send(None)
        except StopIteration as end:
            return end.value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text('a\\",:[{\n', max_size=9)
    | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("role", "content", "type", "text", "url", "image_url", "cache_control")
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    st.sampled_from((b"/v1/chat/completions", b"/v1/completions", b"/v1/responses", b"/other")),
    st.dictionaries(st.sampled_from(("messages", "prompt", "input", "tools", "system")), JSON),
    st.integers(0, 200),
)
def test_body_parsed_in_slices_equals_one_parsed_at_once(
    path: bytes, body: dict[str, Any], repeat: int
) -> None:
    if type(body.get("messages")) is list:
        body["messages"] *= repeat
    wire = json.dumps(body).encode()
    key = SessionKey("body", "user")
    at_once = Identifier(b"", 16, key, b"", BytesPerToken()).read(path, wire, b"", True)
    sliced = driven(
        Identifier(b"", 16, key, b"", BytesPerToken()).read_large(path, wire, b"", True)
    )
    assert sliced.model == at_once.model
    for name in ("chain", "tokens", "block_tokens", "session", "size"):
        assert getattr(sliced.facts, name) == getattr(at_once.facts, name)


@given(JSON, st.integers(1, 70))
def test_counted_values_are_those_outside_strings(value: Any, repeat: int) -> None:
    wire = json.dumps({"x": [value] * repeat, "y": "a,[{:" * 20_000}).encode()
    without = orjson.dumps(_blank(json.loads(wire)))
    most = sum(without.count(mark) * weight for mark, weight in bodies._WEIGHTS.items())
    assert driven(bodies.parse_large(wire, most, ReadPace())) == bodies.parse_body(wire)
    with pytest.raises(Refusal):
        driven(bodies.parse_large(wire, most - 1, ReadPace()))


def test_values_of_a_text_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    whole = bodies._count_values

    def count(text: bytes) -> int:
        counted.append(len(text))
        return whole(text)

    monkeypatch.setattr(bodies, "_count_values", count)
    words = [f"{'word' * (index * index % 97)} and another, " for index in range(10_000)]
    wire = json.dumps({"prompt": "".join(words)}).encode()
    assert driven(bodies.parse_large(wire, 500_000, ReadPace())) == bodies.parse_body(wire)
    assert sum(counted) < len(wire) // 31


@pytest.mark.parametrize("width", [2, 33, 37, 48, 53, 64, 67])
def test_values_at_equal_distances_do_not_evade_the_sample(width: int) -> None:
    wire = b'{"messages": [' + (b"1" + b" " * (width - 2) + b",") * 140_000 + b"1]}"
    for _ in range(10):
        with pytest.raises(Refusal):
            driven(bodies.parse_large(wire, 70_000, ReadPace()))


def _blank(value: Any) -> Any:
    """With texts which hold no marks; as many keys as before."""
    if type(value) is str:
        return ""
    if type(value) is list:
        return [_blank(item) for item in value]
    if type(value) is dict:
        return {f"k{at}": _blank(item) for at, item in enumerate(value.values())}
    return value if type(value) is not int else 0


def forbid_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when the body of a prompt is parsed from here on."""
    loads = orjson.loads

    def guarded(text: Any) -> Any:
        assert not isinstance(text, bytes) or b'"messages"' not in text
        return loads(text)

    monkeypatch.setattr(orjson, "loads", guarded)


def turns(path: bytes, body: dict[str, Any]) -> int:
    """How often reading it gives way, if each slice is over at once."""
    reading = Identifier(b"", 256, None, b"", BytesPerToken()).read_large(
        path, json.dumps(body).encode(), b"", True
    )
    for count in itertools.count():
        try:
            reading.send(None)
        except StopIteration:
            return count
    raise AssertionError


def test_every_long_step_yields_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SLICE_S", -1.0)
    path = b"/v1/chat/completions"
    nothing = turns(path, {"messages": []})
    assert turns(path, {"messages": [PLAIN] * 6400}) >= nothing + 200, "messages"
    long = "x" * 6_553_600
    scanned = turns(b"/other", {"messages": long})
    assert scanned >= nothing + 99, "the values of its bytes"
    assert turns(path, {"messages": long}) >= scanned + 99, "the hashes of its blocks"
    counted = turns(b"/other", {"messages": "," * 6_553_600})
    assert counted >= scanned + 99, "its values, without those in texts"


async def test_other_requests_are_served_while_a_large_body_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each slice is over at once here, and the last one waits for the other request's answer."""
    others = asyncio.Event()
    paused = 0

    sleep = asyncio.sleep

    async def pause(delay: float) -> None:
        nonlocal paused
        if not delay:
            paused += 1
            if paused == 20:
                await others.wait()
        await sleep(delay)

    monkeypatch.setattr(bodies, "SLICE_S", -1.0)
    monkeypatch.setattr(asyncio, "sleep", pause)
    async with FakeWorker() as worker, router(worker) as server:
        body = {"model": "m", "messages": [{"role": "user", "content": "y" * 400}] * 3000}
        large = asyncio.create_task(ask(server, post(body)))
        await until(lambda: paused == 20)
        assert (await ask(server, post(chat("small")))).status == 200
        assert not large.done()
        others.set()
        assert (await large).status == 200
        assert server.router.ring.newest(1)[0].blocks > 0 or len(worker.requests) == 2


async def test_client_that_hangs_up_during_parsing_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleep = asyncio.sleep

    async def pause(delay: float) -> None:
        if not delay:
            await asyncio.Event().wait()
        await sleep(delay)

    monkeypatch.setattr(bodies, "SLICE_S", -1.0)
    async with FakeWorker() as worker, router(worker) as server:
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "sleep", pause)
            async with await Client.to(server.listen) as client:
                await client.send(post(chat("y" * 400_000)))
                await until(lambda: server.router.reading.locked())
            await until(lambda: not server.router.reading.locked())
        await becomes(server, 1, ERRORS, reason="client_cancelled")
        assert server.router.budget.used == 0
        assert worker.requests == []


# -- limits before reading


@pytest.mark.parametrize("size", [100, 400_000])
async def test_limits_are_checked_before_a_body_is_read(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"admission": {"requests_per_minute": 1}}
    async with FakeWorker() as worker, router(worker, **settings) as server:
        assert (await ask(server, post(chat("x")))).status == 200
        forbid_parsing(monkeypatch)
        answer = await ask(server, post(chat("x" * size)))
        assert (answer.status, answer.code) == (429, "rate_limit_exceeded")
        assert int(answer.headers["retry-after"]) > 0


async def test_full_queue_is_detected_before_a_body_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"admission": {"max_in_flight": 1, "queue": {"depth": 0}}}
    async with FakeWorker() as worker, router(worker, **settings) as server:
        worker.script = lambda talk: talk.gone.wait()
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x")))
            await until(lambda: server.router.admission.in_flight == 1)
            forbid_parsing(monkeypatch)
            answer = await ask(server, post(chat("x")))
            assert (answer.status, answer.code) == (429, "queue_full")


# -- what is held


def test_budget_reserves_a_quarter_for_small_requests() -> None:
    budget = BufferBudget(1_000_000)
    assert budget.hold(0, 750_000)
    assert not budget.hold(0, 70_000)
    assert budget.hold(0, 60_000)
    assert budget.used == 810_000
    assert budget.hold(750_000, 740_000), "less than before is always possible"
    assert not budget.hold(0, 60_000 + 1_000_000)
    assert budget.used == 800_000


async def refused(server: Any, wire: bytes) -> Response:
    answer = await ask(server, wire)
    assert (answer.status, answer.code) == (503, "buffer_full")
    assert int(answer.headers["retry-after"]) > 0
    return answer


@pytest.mark.parametrize("form", ["whole", "part", "chunks", "head", "pipelined", "upload"])
async def test_request_bytes_count_against_the_budget_until_released(form: str) -> None:
    limits = {"buffer_bytes": 400_000, "hold_bytes": 200_000, "header_bytes": 90_000}
    filler = b"x" * 190_000
    head = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: "
    wires = {
        "whole": post(filler, "/x"),
        "part": head + b"190001\r\n\r\n" + filler,
        "chunks": b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
        + b"%x\r\n%b\r\n" % (len(filler), filler),
        "head": b"POST /x HTTP/1.1\r\nx: " + filler[:80_000],
        "pipelined": post(b"", "/x") + filler[:80_000],
        "upload": head + b"210000\r\n\r\n" + filler,
    }
    async with FakeWorker() as worker:
        async with router(worker, limits=limits, admission={"max_in_flight": 4}) as server:
            budget = server.router.budget
            worker.script = lambda talk: talk.gone.wait()
            clients = [await Client.to(server.listen) for _ in range(2)]
            for client in clients:
                await client.send(wires[form])
            if form == "upload":  # it is let through: nothing is held once it flows
                await until(lambda: len(server.router.clients) == 2)
                await until(lambda: budget.used == 0)
            elif form in ("head", "pipelined"):
                await until(lambda: budget.used >= 140_000)
                budget.limit = 150_000
            else:
                await until(lambda: budget.used >= 190_000)
            if form != "upload":
                before = budget.used
                await refused(server, post(b"y" * 120_000, "/x"))
                assert await metric(server, ERRORS, reason="buffer_full") >= 1
                assert budget.used <= before
            for client in clients:
                client.writer.transport.abort()
            await until(lambda: budget.used == 0)
            worker.script = None
            assert (await ask(server, post(chat("x")))).status == 200


async def test_body_is_released_with_the_first_response_byte() -> None:
    go = asyncio.Event()

    async def slow(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(b"data: {}\n\n")
        await go.wait()
        await talk.stream_end()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = slow
        async with await Client.to(server.listen) as client:
            await client.send(post(chat("x" * 100_000, stream=True)))
            await client.head()
            assert server.router.budget.used == 0
            go.set()


async def test_initial_bytes_give_no_credit_for_a_slow_upload() -> None:
    """Nine tenths at once, then a byte now and then: it is a slow body all the same."""
    limits = {"body_timeout_s": 0.5}
    async with FakeWorker() as worker, router(worker, limits=limits) as server:
        async with await Client.to(server.listen) as client:
            await client.send(post(b"x" * 1_000_000)[:-100_000])
            answered = asyncio.create_task(client.response())
            while not answered.done():
                client.writer.write(b"x")
                await asyncio.wait([answered], timeout=0.05)
            answer = await answered
            assert (answer.status, answer.code) == (408, "request_timeout")
        assert server.router.budget.used == 0
        assert worker.requests == []


# -- media


def test_number_of_weighed_media_is_bounded() -> None:
    def size(count: int) -> int:
        part = {"type": "image_url", "image_url": {"url": "x"}}
        return len(canonical.read(b"/v1/chat/completions", chat_body([part] * count), "m")[0])

    first = canonical.MAX_WEIGHED_MEDIA
    assert size(first) > first * canonical.MEDIUM_BYTES
    assert size(first + 100) - size(first) < 100 * 32
    few, many = (
        canonical.read(b"/v1/chat/completions", chat_body([{"type": "file"}] * count), "m")[0]
        for count in (first + 1, first + 2)
    )
    assert many.startswith(few), "more media continue the prompt, and do not change it"


def test_deeply_nested_value_is_not_walked_completely() -> None:
    walk = canonical.MediaCount()
    tools = [{"cache_control": 1, "n": {}}] * (canonical._MAX_OBJECTS + 10)
    squeezed = canonical._without_media(tools, walk)
    assert "cache_control" not in squeezed[0]
    assert squeezed[-1] is tools[-1]


# -- the admin port


@pytest.mark.parametrize("strategy", ["", "?strategy=roundrobin"])
async def test_explain_has_the_same_bounds(strategy: str) -> None:
    path, body, code, _ = TOO_MANY["parts"]
    async with FakeWorker() as worker, router(worker, limits=LIMITS) as server:
        answer = await admin(server, f"/explain{strategy}", "POST", json.dumps(body).encode())
        assert (answer.status, answer.code) == (400, code)
        wire = padded(chat_body("x") | COMPLEX["objects"], 300_000)
        answer = await admin(server, f"/explain{strategy}", "POST", wire)
        assert (answer.status, answer.code) == (400, "body_too_complex")
        server.router.budget.limit = 1000
        answer = await admin(server, "/explain", "POST", wire)
        assert (answer.status, answer.code) == (503, "buffer_full")
        assert (await admin(server, "/metrics")).status == 200
        await until(lambda: server.router.budget.used == 0)
        assert path == CHAT


# -- configuration


def test_the_budget_holds_two_bodies_at_least() -> None:
    limits = {"hold_bytes": 2048, "buffer_bytes": 4095}
    with pytest.raises(ConfigError) as caught:
        parse({"listen": "127.0.0.1:1", "limits": limits}, Path())
    assert caught.value.field == "limits.buffer_bytes"
    limits["buffer_bytes"] = 4096
    assert parse({"listen": "127.0.0.1:1", "limits": limits}, Path()).limits.buffer_bytes == 4096


@pytest.mark.parametrize("name", ["messages", "parts", "json_values"])
def test_size_limit_must_be_a_positive_integer(name: str) -> None:
    assert getattr(LimitsConfig(), name) >= 10_000
    with pytest.raises(ConfigError) as caught:
        parse({"listen": "127.0.0.1:1", "limits": {name: 0}}, Path())
    assert caught.value.field == f"limits.{name}"
