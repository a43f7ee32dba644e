"""Cache diagnostics in answers: on request only, by API, and never of another key's prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from routing.engine.misses.annotation import EventAnnotator, add_fields
from routing.engine.server import RouterServer
from tests.routing.engine.harness import Response, ask, post, router
from tests.routing.engine.misses.test_ledger import text
from tests.routing.engine.test_router_access import bearer, keys
from tests.support.cached_worker import CachedWorker

RULES = text(1)
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


def events(answer: Response) -> list[dict[str, Any]]:
    lines = [one for one in answer.body.decode().split("\n") if one.startswith("data: {")]
    return [json.loads(one[6:]) for one in lines]


async def send(
    server: RouterServer, path: str, now: str, question: str = "Why?", key: str = "",
    cache: str = "", **more: Any,
) -> Response:  # fmt: skip
    """A system prompt with the time before the rules."""
    content = [
        {"role": "system", "content": f"You help.\nNow: {now}\n{RULES}"},
        {"role": "user", "content": question},
    ]
    body = {"model": "m", "input" if path == RESPONSES else "messages": content, **more}
    lines = {"authorization": bearer(key)} if key else {}
    if cache:
        lines["x_emberline_diagnostics"] = cache
    answer = await ask(server, post(body, path, **lines))
    assert answer.status == 200, answer.body
    return answer


@pytest.mark.parametrize("stream", [False, True])
async def test_header_adds_causes_and_remedy_and_nothing_else_does(stream: bool) -> None:
    async with CachedWorker() as one, router(one) as server:
        plain = await send(server, CHAT, "2026-11-22 10:00", stream=stream)
        assert b"diagnostics" not in plain.raw
        before = plain.headers["x-emberline-decision"]
        found = await send(
            server, CHAT, "2026-11-23 11:12", stream=stream, cache=f"cache; previous={before}"
        )
        assert not any("diagnostics" in name for name in one.requests[-1].headers)
        shown = (events(found)[-1] if stream else found.json)["emberline_diagnostics"]
        assert shown["main_cause"] == "changed_timestamp"
        assert shown["remedy"].startswith("Move the part that changes")
        assert shown["changed_at"]["part"] == "message 1 (system)"
        assert sum(shown["causes"].values()) == shown["computed_tokens"]
        assert shown["prompt_tokens"] == shown["cached_tokens"] + shown["computed_tokens"]
        compared = shown["compared"]
        assert (compared["found"], compared["first_difference"]) == (True, 0)
        assert compared["part"] == "message 1 (system)"
        if stream:
            assert len(events(found)) == len(events(plain)), "no event is added"
            assert found.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_field_compares_with_the_previous_message(stream: bool) -> None:
    async def turn(now: str, question: str, previous: str | None) -> tuple[str, Any]:
        requested = {"previous_message_id": previous}
        answer = await send(server, MESSAGES, now, question, stream=stream, diagnostics=requested)
        found = events(answer)[0]["message"] if stream else answer.json
        assert "emberline_diagnostics" not in answer.body.decode()
        return found["id"], found["diagnostics"]

    async with CachedWorker() as one, router(one) as server:
        first, none = await turn("2026-11-22", "Why?", None)
        assert none is None
        second, none = await turn("2026-11-22", "Why? And then?", None)
        assert none is None
        _, edited = await turn("2026-11-22", "Why? And when?", second)
        assert edited["cache_miss_reason"]["type"] == "messages_changed"
        _, changed = await turn("2026-11-23", "Why?", first)
        assert changed["cache_miss_reason"]["type"] == "system_changed"
        assert changed["cache_miss_reason"]["cache_missed_input_tokens"] > 900
        _, unknown = await turn("2026-11-23", "Why?", "msg_unknown")
        assert unknown == {"cache_miss_reason": {"type": "previous_message_not_found"}}
        _, same = await turn("2026-11-22", "Why?", first)
        assert same is None


async def test_openai_field_compares_with_an_answer_that_did_not_ask() -> None:
    async with CachedWorker() as one, router(one) as server:
        first = await send(server, RESPONSES, "2026-11-22", stream=True)
        number = events(first)[0]["response"]["id"]
        options = {"prompt_cache_options": {"comparison_response_id": number}}
        again = await send(server, RESPONSES, "2026-11-22", stream=True, **options)
        assert "diagnostics" not in events(again)[0]["response"]
        assert events(again)[-1]["response"]["prompt_cache_diagnostics"] == {"type": "cache_hit"}
        tools = [{"type": "function", "name": "get_date"}]
        for more, reason in (
            ({"tools": tools}, "tools_changed"),
            ({"model": "x"}, "model_changed"),
        ):
            changed = await send(server, RESPONSES, "2026-11-22", stream=True, **options, **more)
            shown = events(changed)[-1]["response"]["prompt_cache_diagnostics"]
            assert (shown["type"], shown["reason"]) == ("cache_miss", reason)
            assert shown["cache_missed_tokens"] == shown["comparison_reusable_tokens"] > 900


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_each_event_read_by_itself_is_annotated(path: str) -> None:
    async with CachedWorker() as one, router(one) as server:
        one.paced = True
        plain = await send(server, path, "2026-11-22", stream=True)
        found = await send(server, path, "2026-11-22", stream=True, cache="cache")
        assert found.body.count(b'"emberline_diagnostics"') == 1
        names = [(one.get("type"), "usage" in one) for one in events(found)]
        assert names == [(one.get("type"), "usage" in one) for one in events(plain)], "in order"


@pytest.mark.parametrize("isolation", ["shared", "key"])
async def test_another_keys_prompts_stay_unknown(tmp_path: Path, isolation: str) -> None:
    config = {"api_keys_file": keys(tmp_path, a=False, b=False), "cache_isolation": isolation}
    async with CachedWorker() as one, router(one, **config) as server:
        mine = await send(server, CHAT, "2026-11-22", key="a")
        number = mine.headers["x-emberline-decision"]
        theirs = await send(server, CHAT, "2026-11-23", key="b", cache=f"cache; previous={number}")
        shown = theirs.json["emberline_diagnostics"]
        assert shown["compared"] == {"id": number, "found": False}
        assert (shown["main_cause"], shown["changed_at"]) == ("first_seen", None)
        hidden = "other_salt" if isolation == "key" else "changed_timestamp"
        assert hidden not in shown["causes"]
        decision = server.router.ring.get(shown["decision"])
        assert decision is not None and decision.misses is not None
        assert hidden in decision.misses.tokens, "the operator's ledger has it"


async def test_worker_killed_in_a_held_answer_is_replaced() -> None:
    async with CachedWorker() as one, CachedWorker() as two, router(one, two) as server:

        async def broken(talk: Any) -> None:
            await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n" + b'{"id":"c"')
            talk.cut()

        one.script = broken
        for number in range(4):  # either worker may come first
            answer = await send(server, CHAT, f"2026-11-2{number}", cache="cache")
            assert answer.json["emberline_diagnostics"]["worker"] == "w1"


def test_fields_are_added_to_objects_only() -> None:
    assert add_fields(b'{"a":1}\n', {"b": 2}) == b'{"a":1,"b":2}'
    assert add_fields(b"{ }", {"b": 2}) == b'{ "b":2}'
    assert add_fields(b"[1]", {"b": 2}) == b"[1]"


def test_events_are_whole_wherever_the_stream_is_cut() -> None:
    stream = b'data: {"choices":[{"finish_reason":null}]}\n\n'
    stream += b'data: {"choices":[{"finish_reason":"stop"}]}\r\n\r\ndata: [DONE]\n\n'
    for cut in range(len(stream)):
        found = EventAnnotator(CHAT.encode(), {})
        out = found.feed([stream[:cut]]) + found.feed([stream[cut:]])
        assert b"stop" not in b"".join(out)
        whole = b"".join(out + found.end({"d": 1}))
        assert whole.count(b'"d":1') == 1
        assert whole.endswith(b'"d":1}\n\ndata: [DONE]\n\n')
