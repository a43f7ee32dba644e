"""Token accounting by key: streams, aborted and unreported responses, budgets in flight."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from routing.engine.prompt import engine_request
from routing.engine.tokens.usage import AnswerTokens, StreamFilter, TokenUsage, UsageReader
from tests.routing.engine.harness import (
    WITH_USAGE,
    Client,
    admin,
    ask,
    becomes,
    chat,
    metric,
    post,
    router,
    until,
)
from tests.routing.engine.test_router_access import bearer, keys
from tests.support.fake_worker import Conversation, FakeWorker, event

ESTIMATED = "emberline_router_estimated_tokens_total"
PRINT = "vllm-0.32.0-abc"


def dump(**data: Any) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def chunk(text: str, finish: str | None = None, **more: Any) -> bytes:
    return dump(id="c", choices=[{"delta": {"content": text}, "finish_reason": finish}], **more)


TOKENS = [chunk(f"word {n}") for n in range(3)]
USED = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
DONE = b"data: [DONE]\n\n"


class Engine:
    def __init__(self, fingerprint: str | None = None) -> None:
        self.fingerprint = fingerprint


def through(stream: bytes, cuts: list[int], engine: Engine) -> tuple[bytes, TokenUsage | None]:
    found = StreamFilter(engine)
    out: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        out += found.feed([stream[start:end]])
    return b"".join(out + found.end()), found.usage


def vllm(fingerprint: str | None) -> tuple[bytes, bytes]:
    """A stream with the option, and the same without it, as vLLM 0.32 writes them."""
    printed = {} if fingerprint is None else {"system_fingerprint": fingerprint}
    requested = [
        *TOKENS,
        chunk("end", "stop"),
        dump(id="c", choices=[], usage=USED, **printed),
        DONE,
    ]
    plain = [*TOKENS, chunk("end", "stop", **printed), DONE]
    return b"".join(requested), b"".join(plain)


# -- the filter


@pytest.mark.parametrize("known", [None, "", PRINT])
@pytest.mark.parametrize("fingerprint", [None, PRINT])
def test_stream_equals_one_without_the_option_at_any_split(
    fingerprint: str | None, known: str | None
) -> None:
    if known is not None and known != (fingerprint or ""):
        pytest.skip("a worker's fingerprint does not change while it lives")
    stream, plain = vllm(fingerprint)
    every = [[], list(range(1, len(stream))), *([at] for at in range(1, len(stream)))]
    for cuts in every:
        assert through(stream, cuts, Engine(known)) == (plain, TokenUsage(9, 4, None)), cuts


@pytest.mark.parametrize(
    "stream",
    [
        b"".join([*TOKENS, DONE]),
        b"".join([*TOKENS, chunk("end", "stop"), DONE]),
        b"".join(one.replace(b"\n", b"\r\n") for one in [*TOKENS, chunk("end", "stop"), DONE]),
        b"".join([dump(choices=[{"text": "x" * 40_000}]), *TOKENS, DONE]),
        b"".join([chunk("a", usage=USED), chunk("b", "stop", usage=USED), DONE]),
        b"".join([dump(choices=[], usage=None), DONE]),
        b': comment\n\ndata: no json "usage" here\n\ndata: unfinished',
        b"".join([dump(choices=[{"text": '"usage":{"prompt_tokens":1}'}]), DONE]),
    ],
)
def test_other_responses_pass_unchanged(stream: bytes) -> None:
    for step in (1, 7, 1000, len(stream)):
        assert through(stream, list(range(step, len(stream), step)), Engine())[0] == stream


def test_events_are_forwarded_at_once() -> None:
    found = StreamFilter(Engine())
    assert found.feed([TOKENS[0]]) == [TOKENS[0]]
    assert found.feed([TOKENS[1] + TOKENS[2][:9]]) == [TOKENS[1]]
    assert found.feed([TOKENS[2][9:]]) == [TOKENS[2]]
    assert found.feed([b"data: " + b"x" * 100_000]), "a long one is not held"
    assert not found.between


def framed(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (*chunks, b""))


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_chunks_stay_whole_at_any_split(version: bytes) -> None:
    """Also where events are cut or joined into chunks by a proxy on the way."""
    stream, plain = vllm(PRINT)
    halves = [stream[at : at + 90] for at in range(0, len(stream), 90)]
    events = [one + b"\n\n" for one in stream.split(b"\n\n")[:-1]]
    parts: list[bytes] = []

    async def script(talk: Conversation) -> None:
        await talk.stream_head()
        for part in parts:
            await talk.send(part)
            for _ in range(3):  # let the router read it by itself
                await asyncio.sleep(0)

    request = post(chat("hi", stream=True)).replace(b"HTTP/1.1", version)
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = script
        for wire in (framed(*events), framed(stream), framed(*halves)):
            for at in range(1, len(wire), 11):
                parts[:] = [wire[:at], wire[at : at + 5], wire[at + 5 :]]
                async with await Client.to(server.listen) as client:
                    await client.send(request)
                    assert (await client.response()).body == plain, (at, wire)


def test_usage_is_found_anywhere_in_a_body() -> None:
    body = json.dumps(
        {"tools": [{"usage": {"prompt_tokens": "no"}}], "usage": USED, "ids": ["usage"] * 9000}
    ).encode()
    for step in (1, 100, len(body)):
        reader = UsageReader()
        for at in range(0, len(body), step):
            reader.feed(body[at : at + step])
        assert reader.usage == TokenUsage(9, 4, None)
        assert reader.size == len(body)


# -- bodies


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, {"include_usage": True}),
        ({"stream_options": None}, {"include_usage": True}),
        ({"stream_options": {"x": 1}}, {"x": 1, "include_usage": True}),
        ({"stream_options": {"continuous_usage_stats": True}}, {"include_usage": True}),
        (
            {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
            {"include_usage": True, "continuous_usage_stats": True},
        ),
        ({"stream_options": 7}, 7),
    ],
)
@pytest.mark.parametrize("strategy", ["prefixaware", "roundrobin"])
async def test_usage_is_requested_from_the_engine(options: Any, sent: Any, strategy: str) -> None:
    async with FakeWorker() as worker, router(worker, strategy=strategy) as server:
        for wanted in (True, "true", 1):
            worker.script = lambda talk: talk.json({})
            await ask(server, post(chat("hi", stream=wanted, **options)))
            body = worker.requests[-1].json
            assert body.pop("stream_options") == sent
            assert body == chat("hi", stream=wanted)


@pytest.mark.parametrize("strategy", ["prefixaware", "roundrobin"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/chat/%63ompletions", "/invocations"])
async def test_every_spelling_of_stream_is_detected(path: str, strategy: str) -> None:
    body = b'{"model":"m","\\u0073tream" : true,"messages":[{"role":"user","content":"hi"}] }\n'
    async with FakeWorker() as worker, router(worker, strategy=strategy) as server:
        answer = await ask(server, post(body, path))
        assert b'"usage"' not in answer.body
        mine = (await used(server))[""]
        assert (mine["unreported"], mine["completion_tokens"]) == (0, 3)


async def test_non_stream_bodies_are_sent_unchanged() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        for body in (chat("stream"), chat("hi", stream=False), chat("hi", **WITH_USAGE)):
            await ask(server, post(body))
            assert worker.requests[-1].body == json.dumps(body).encode()


# -- what counts


async def used(server: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await admin(server, "/usage")).json["keys"]
    return found


async def test_stream_is_counted_and_hides_the_added_usage(tmp_path: Path) -> None:
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=keys(tmp_path, a=False)) as server:
            plain = await ask(server, post(chat("hi", stream=True), authorization=bearer("a")))
            assert plain.body == b"".join(event(f"word{n} ") for n in range(3)) + DONE
            requested = await ask(server, post(chat("hi", **WITH_USAGE), authorization=bearer("a")))
            assert b'"usage"' in requested.body
            mine = (await used(server))["a"]
            assert (mine["requests"], mine["unreported"]) == (2, 0)
            assert mine["completion_tokens"] == 6
            assert mine["prompt_tokens"] == sum(len(one.body) // 4 for one in worker.requests)


async def test_prompt_counts_for_each_of_its_choices() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        await ask(server, post(chat("hi", n=3)))
        await ask(server, post(chat("hi", n="3", stream=True)))
        each = sum(len(one.body) // 4 for one in worker.requests)
        assert (await used(server))[""]["prompt_tokens"] == 3 * each
        assert await metric(server, "emberline_router_prompt_tokens_total") == 3 * each


async def hung_up(server: Any, body: dict[str, Any], until_seen: bytes, **headers: str) -> None:
    async with await Client.to(server.listen) as client:
        await client.send(post(body, **headers))
        if until_seen:
            async with asyncio.timeout(60):
                await client.reader.readuntil(until_seen)


async def test_aborted_stream_counts_its_received_tokens() -> None:
    async def endless(talk: Conversation) -> None:
        await talk.stream_head()
        for number in range(9):
            await talk.chunk(event(f"<{number}>"))
        await talk.gone.wait()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = endless
        await hung_up(server, chat("hi " * 400, stream=True), b"<8>")
        await becomes(server, 8, ESTIMATED, kind="completion", reason="client_cancelled")
        mine = (await used(server))[""]
        assert mine["completion_tokens"] == mine["estimated_completion_tokens"] == 8
        assert mine["prompt_tokens"] == mine["estimated_prompt_tokens"] == 301
        (decision,) = (await admin(server, "/decisions")).json["decisions"]
        assert decision["estimate_reason"] == "client_cancelled"


@pytest.mark.parametrize("stream", [True, False])
async def test_response_that_was_not_started(stream: bool) -> None:
    """vLLM counts nothing before a prompt's first token: of a stream that is its first event."""

    async def silent(talk: Conversation) -> None:
        if stream:
            await talk.stream_head()
        await talk.gone.wait()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = silent
        task = asyncio.create_task(hung_up(server, chat("hi " * 400, stream=stream), b"never"))
        await worker.until(lambda: bool(worker.requests))
        task.cancel()
        await becomes(server, 1, "emberline_router_request_errors_total", reason="client_cancelled")
        assert (await used(server))[""]["prompt_tokens"] == (0 if stream else 301)


async def test_missing_usage_is_estimated() -> None:
    async def mute(talk: Conversation) -> None:
        if not talk.request.json.get("stream"):
            await talk.json({"choices": [{"message": {"content": "word " * 20}}]})
            return
        await talk.stream_head()
        for number in range(5):
            await talk.chunk(event(f"{number}"))
        await talk.stream_end()

    async with FakeWorker() as worker, router(worker) as server:
        worker.script = mute
        await ask(server, post(chat("hi " * 40, stream=True)))
        await ask(server, post(chat("hi " * 40)))
        mine = (await used(server))[""]
        assert (mine["requests"], mine["unreported"]) == (2, 2)
        assert mine["prompt_tokens"] == mine["estimated_prompt_tokens"] == 2 * 31
        assert mine["completion_tokens"] == mine["estimated_completion_tokens"] > 4 + 20
        by_metric = await metric(server, ESTIMATED, reason="not_reported")
        assert by_metric == mine["prompt_tokens"] + mine["completion_tokens"]


@pytest.mark.parametrize(
    ("path", "status"), [("/tokenize", 200), ("/version", 200), ("/v1/embeddings", 500)]
)
async def test_requests_without_computation_cost_nothing(path: str, status: int) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = lambda talk: talk.json({"tokens": [1] * 99}, status)
        await ask(server, post(chat("hi " * 40), path))
        mine = (await used(server))[""]
        assert (mine["prompt_tokens"], mine["completion_tokens"]) == (0, 0)


def test_reservation_covers_the_possible_response() -> None:
    def completion(path: bytes = b"/v1/completions", **data: Any) -> int:
        requested = engine_request.EngineRequest(path)
        engine_request.read_parameters(requested, data)
        return requested.completion

    assert completion(max_tokens=7) == 7
    assert completion(max_completion_tokens=5, max_tokens=7) == 5
    assert completion(max_tokens="7", n=2, prompt=["a", "b", "c"]) == 42
    assert completion(prompt=[1, 2, 3]) == engine_request.DEFAULT_COMPLETION
    assert completion(b"/v1/embeddings", input=["a"]) == 0
    assert completion(b"/v1/messages", n=9, max_tokens=3) == 3
    assert completion(max_tokens=10**40, n=10**9) == 10**9 * 1024


# -- budgets


def budgeted(tmp_path: Path, tokens: int) -> str:
    file = Path(keys(tmp_path, a=False, b=False))
    entries = json.loads(file.read_text())["keys"]
    entries[0]["budget_tokens"] = tokens
    file.write_text(json.dumps({"keys": entries}))
    return str(file)


async def test_concurrent_requests_cannot_exceed_a_budget(tmp_path: Path) -> None:
    """Eight of 390 tokens each on a budget of 1,000: it is exceeded by less than one of them."""
    gate = asyncio.Event()

    async def generate(talk: Conversation) -> None:
        await talk.stream_head()
        await gate.wait()
        reported = {"prompt_tokens": 40, "completion_tokens": 350}
        await talk.chunk(dump(choices=[], usage=reported))
        await talk.stream_end()

    body = chat("word " * 30, stream=True, max_tokens=350)
    request = post(body, authorization=bearer("a"))
    async with FakeWorker() as worker:
        worker.script = generate
        async with router(worker, api_keys_file=budgeted(tmp_path, 1000)) as server:
            calls = [asyncio.create_task(ask(server, request)) for _ in range(8)]
            await until(lambda: sum(call.done() for call in calls) == 5, "those refused")
            refused = [call.result() for call in calls if call.done()]
            assert {(one.status, one.code) for one in refused} == {(429, "budget_reserved")}
            assert all("lower max_tokens" in one.json["error"]["message"] for one in refused)
            gate.set()
            answers = await asyncio.gather(*calls)
            assert [one.status for one in answers].count(200) == 3
            mine = (await used(server))["a"]
            assert (mine["prompt_tokens"] + mine["completion_tokens"], mine["reserved"]) == (
                1170,
                0,
            )
            after = await ask(server, request)
            assert (after.status, after.code) == (429, "insufficient_quota")
            other = post(body, authorization=bearer("b"))
            assert (await ask(server, other)).status == 200, "another key has a budget of its own"


async def test_remaining_budget_comes_from_the_console(tmp_path: Path) -> None:
    async def post_budgets(instance: str, **budget: float) -> int:
        reported = {"instance": instance, "keys": {"a": budget, "unknown": budget}}
        return (await admin(server, "/budgets", "POST", json.dumps(reported).encode())).status

    request = post(chat("hi"), authorization=bearer("a"))
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=budgeted(tmp_path, 10**6)) as server:
            assert (await ask(server, request)).status == 200
            found = (await admin(server, "/usage")).json
            mine, instance = found["keys"]["a"], found["instance"]
            counted = mine["prompt_tokens"] + mine["completion_tokens"]
            later = {"resets_at": 4e9}
            assert await post_budgets(instance, left=0, counted=counted, **later) == 200
            assert (await ask(server, request)).code == "insufficient_quota"
            assert await post_budgets("another", left=50, counted=counted, **later) == 200
            assert (await ask(server, request)).code == "insufficient_quota"
            assert await post_budgets(instance, left=5, counted=counted, **later) == 200
            assert (await ask(server, request)).status == 200
            assert (await ask(server, request)).code == "insufficient_quota"
            assert await post_budgets(instance, left=-5, counted=0, resets_at=1.0) == 200
            assert (await ask(server, request)).status == 200, "a new period has begun"
            assert "unknown" not in await used(server)
            assert await post_budgets(instance, left=5) == 400


@pytest.mark.parametrize("end", ["refused", "cancelled", "failed"])
async def test_reservation_is_released(tmp_path: Path, end: str) -> None:
    async def script(talk: Conversation) -> None:
        if end == "failed":
            talk.cut()
        await talk.gone.wait()

    file = budgeted(tmp_path, 10**6)
    async with FakeWorker() as worker:
        async with router(worker, api_keys_file=file, retry={"attempts": 1}) as server:
            worker.script = script
            if end == "refused":
                request = post(chat("hi"), authorization=bearer("a"), x_emberline_pin="w9")
                await ask(server, request)
            else:
                body = chat("hi", stream=True)
                wire = post(body, authorization=bearer("a"))
                async with await Client.to(server.listen) as client:
                    await client.send(wire)
                    await worker.until(lambda: bool(worker.requests))
            use = server.router.recorder.use.of("a")
            await until(lambda: use.reserved == 0 and (use.requests or end == "refused"))


def test_only_plain_events_pass_the_filter_unread() -> None:
    plain = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    last = plain.replace(b"null", b'"stop"')
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'

    def passes(answer: AnswerTokens, piece: bytes) -> bool:
        return answer.passes(b"%x\r\n%b\r\n" % (len(piece), piece), piece)

    requested = AnswerTokens(True, StreamFilter(Engine()))
    for piece in (last, usage, plain + plain, plain[:-1]):
        assert not passes(requested, piece)
        assert (requested.events, requested.tail) == (0, b""), "left to the filter"
    assert passes(requested, plain)
    assert (requested.events, requested.tail) == (1, plain)
    own = AnswerTokens(True, None)
    for piece in (plain, last, usage, b"data: [DONE]\r\n\r\n"):
        assert passes(own, piece)
    assert own.events == 4
    assert own.usage() == TokenUsage(9, 1, None)
