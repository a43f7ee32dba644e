"""Shared and separate prompt prefixes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routing.engine.config import SessionKey
from routing.engine.errors import Refusal
from routing.engine.prompt.identity import Identifier, guess_path, preview
from routing.engine.tokens.usage import BytesPerToken

CHAT = b"/v1/chat/completions"
LONG = "All work and no play makes Jack a dull boy. " * 40


def identifier(session_key: SessionKey | None = None, secret: bytes = b"s" * 32) -> Identifier:
    return Identifier(secret, 64, session_key, secret, BytesPerToken())


def chain(body: Any, path: bytes = CHAT, secret: bytes = b"s" * 32) -> list[int]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return identifier(secret=secret).read(path, data, b"", True).facts.chain


def chat(*contents: Any, **more: Any) -> dict[str, Any]:
    roles = ["system", "user", "assistant", "user"]
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return {"model": "m", "messages": messages, **more}


def shared(first: list[int], second: list[int]) -> int:
    count = 0
    for one, two in zip(first, second, strict=False):
        if one != two:
            break
        count += 1
    return count


def test_next_turn_of_a_chat_extends_the_last() -> None:
    first = chain(chat(LONG, "a question of some length " * 8))
    second = chain(chat(LONG, "a question of some length " * 8, "an answer", "more"))
    assert shared(first, second) == len(first) > 20


def test_spacing_and_order_of_the_json_do_not_matter() -> None:
    body = chat(LONG, "q")
    turned = {"messages": [dict(reversed(m.items())) for m in body["messages"]], "model": "m"}
    assert chain(body) == chain(json.dumps(turned, indent=3).encode())
    assert chain(body) == chain({**body, "temperature": 1, "stream": True, "seed": 4})


@pytest.mark.parametrize(
    "other",
    [
        chat(LONG, "q", model="lora-a"),
        chat(LONG, "q", cache_salt="tenant"),
        chat(LONG, "q", tools=[{"type": "function", "function": {"name": "f"}}]),
        {"model": "m", "messages": [{"role": "user", "content": LONG}]},
    ],
)
def test_prompts_that_the_engine_separates_are_separate(other: dict[str, Any]) -> None:
    assert shared(chain(chat(LONG, "q")), chain(other)) == 0


def test_salts_and_models_cannot_collide() -> None:
    one = chain(chat(LONG, "q", model="a", cache_salt="bc"))
    two = chain(chat(LONG, "q", model="ab", cache_salt="c"))
    assert shared(one, two) == 0


def test_difference_in_the_middle_ends_the_match_there() -> None:
    changed = LONG[:700] + "X" + LONG[701:]
    first, second = chain(chat(LONG, "q")), chain(chat(changed, "q"))
    assert 9 <= shared(first, second) <= 11


def test_parts_with_images_and_tool_calls_count() -> None:
    image = [{"type": "text", "text": LONG}, {"type": "image_url", "image_url": {"url": "data:1"}}]
    other = [{"type": "text", "text": LONG}, {"type": "image_url", "image_url": {"url": "data:2"}}]
    first, second = chain(chat(image, "q" * 200)), chain(chat(other, "q" * 200))
    assert 0 < shared(first, second) < len(first)


def test_completions_accept_text_and_token_ids() -> None:
    path = b"/v1/completions"
    text = chain({"model": "m", "prompt": LONG}, path)
    assert len(text) == len(LONG) // 64
    ids = list(range(100))
    found = identifier().read(path, json.dumps({"prompt": ids}).encode(), b"", True).facts
    assert found.tokens == 100
    assert len(found.chain) == 100 * 4 // 64
    longer = chain({"prompt": [*ids, 7, 8]}, path)
    assert shared(found.chain, longer) == len(found.chain)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/v1/responses", {"model": "m", "instructions": LONG, "input": "hello"}),
        (b"/v1/messages", {"model": "m", "system": LONG, "messages": []}),
        (b"/v1/embeddings", {"model": "m", "input": LONG}),
        (b"/v1/completions", {"model": "m", "prompt": [LONG, "second"]}),
    ],
)
def test_other_apis_have_prefixes_too(path: bytes, body: dict[str, Any]) -> None:
    assert len(chain(body, path)) > 20


def test_changed_secret_changes_all_hashes() -> None:
    assert shared(chain(chat(LONG)), chain(chat(LONG), secret=b"t" * 32)) == 0


def test_tokens_are_estimated_as_a_fourth_of_the_bytes() -> None:
    body = json.dumps({"prompt": "x" * 400, "logit_bias": {"1": 2}}).encode()
    assert identifier().read(b"/v1/completions", body, b"", True).facts.tokens == 100


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"5",
        b'{"messages": 5}',
        b'{"messages": null, "model": 7}',
        b'{"messages": [1, null, {"role": 3, "content": 4}], "model": "m"}',
        b'{"prompt": [99999999999999999999]}',
        b'{"model": "' + b"x" * 5000 + b'"}',
        b'{"tools": {"a": [[[]]]}}',
    ],
)
def test_arbitrary_bodies_do_not_break_routing(body: bytes) -> None:
    for path in (CHAT, b"/v1/completions", b"/v1/audio/transcriptions"):
        assert not identifier().read(path, body, b"", True).facts.chain


def test_sessions_are_read_from_the_body_when_configured() -> None:
    reader = identifier(SessionKey("body", "user"))
    for value, expected in (("alice", b"alice"), (7, b"7"), ({"a": 1}, b""), (None, b"")):
        body = json.dumps({"model": "m", "user": value}).encode()
        found = reader.read(CHAT, body, b"", False)
        assert found.facts.session == expected
        assert found.model == "m"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"not json", r"not valid JSON: .* line 1 column 1 \(byte 0\)"),
        (b'{"model": "m",\n "a": broken', r"line 2 column 7 \(byte 21\)"),
        (b'{"messages": [{"content": "\\ud800"}]}', r"not valid JSON: .* \(byte \d+\)"),
        (b'{"temperature": NaN}', r"line 1 column 17 \(byte 16\)"),
        ('{"messages": []}'.encode("utf-16"), "must be JSON in UTF-8"),
        ('{"messages": []}'.encode("utf-32-be"), "must be JSON in UTF-8"),
        (b'{"prompt": "\xe9"}', r"not valid UTF-8 \(byte 12\)"),
    ],
)
def test_invalid_json_is_refused_with_its_place(body: bytes, text: str) -> None:
    for path in (CHAT, b"/v1/completions", b"/tokenize"):
        with pytest.raises(Refusal, match=text) as caught:
            identifier().read(path, body, b"", True)
        assert (caught.value.code, caught.value.kind.status) == ("invalid_json", 400)
    assert not identifier().read(b"/v1/audio/transcriptions", body, b"", True).parsed


def test_body_is_only_scanned_where_possible() -> None:
    body = b'{"model": "m", broken'
    found = identifier().read(b"/v1/audio/transcriptions", body, b"s", False)
    assert (found.model, found.facts.session, found.facts.chain) == ("m", b"s", ())


def test_callers_cannot_grow_the_seed_cache() -> None:
    reader = identifier()
    for index in range(5000):
        body = json.dumps(chat(LONG, cache_salt=f"s{index}")).encode()
        reader.read(CHAT, body, b"", True)
    assert len(reader._seeds) <= 1024


def test_bare_body_identifies_its_api() -> None:
    assert guess_path({"messages": []}) == CHAT
    assert guess_path({"prompt": ""}) == b"/v1/completions"
    for bad in (None, {}):
        with pytest.raises(Refusal):
            guess_path(bad)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (chat("You are\n\n a helpful\tbot\x1b[31m", "Hello"), "You are a helpful bot [31m"),
        ({"system": [{"type": "text", "text": "Be brief"}], **chat("x")}, "Be brief"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Look"}]}]}, "Look"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, ""),
        ({"prompt": "Once upon a time"}, "Once upon a time"),
        ({"prompt": ["first", "second"]}, "first"),
        ({"prompt": [1, 2, 3]}, ""),
        ({"input": "Embed me", "instructions": None}, "Embed me"),
        ({"prompt": "x" * 500}, "x" * 40),
        ({"prompt": [[[[[["deep"]]]]]]}, ""),
        ({"messages": {"role": "user"}, "prompt": 3}, ""),
    ],
)
def test_preview_is_the_first_text_of_a_prompt(body: dict[str, Any], text: str) -> None:
    assert preview(body, 40) == text
