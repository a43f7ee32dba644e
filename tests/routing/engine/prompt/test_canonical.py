"""Canonical bytes of a prompt: equal up to the common prefix, in every API."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.config import SessionKey
from routing.engine.prompt import canonical
from routing.engine.prompt.canonical import MEDIUM_BYTES
from routing.engine.prompt.identity import Identifier
from routing.engine.tokens.usage import BytesPerToken

CHAT, TEXT = b"/v1/chat/completions", b"/v1/completions"
RESPONSES, ANTHROPIC = b"/v1/responses", b"/v1/messages"
BLOCK = 16
LONG = "All work and no play makes Jack a dull boy. " * 20


def read(body: dict[str, Any], path: bytes = CHAT) -> canonical.Prompt:
    return canonical.read(path, body, str(body.get("model", "")))


def data(body: dict[str, Any], path: bytes = CHAT) -> bytes:
    return read(body, path)[0]


def chain(body: dict[str, Any], path: bytes = CHAT, spaced: bool = False) -> list[int]:
    identifier = Identifier(b"", BLOCK, None, b"show", BytesPerToken())
    text = json.dumps(body, indent=2) if spaced else json.dumps(body, separators=(",", ":"))
    return list(identifier.read(path, text.encode(), b"", True).facts.chain)


def common(first: Any, second: Any) -> int:
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


# -- properties

words = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF), max_size=60)
calls = st.lists(
    st.fixed_dictionaries({"id": words, "function": st.dictionaries(words, words, max_size=2)}),
    max_size=2,
)
messages = st.one_of(
    st.builds(turn, st.sampled_from(["user", "assistant", "system"]), words),
    st.builds(
        lambda texts: turn("user", [{"type": "text", "text": text} for text in texts]),
        st.lists(words, min_size=1, max_size=3),
    ),
    st.builds(lambda text, found: turn("assistant", text, tool_calls=found), words, calls),
    st.builds(lambda url, text: turn("user", [image(url), {"type": "text", "text": text}]),
              st.sampled_from(["http://a/1", "http://a/2", "data:" + "x" * 400]), words),
)  # fmt: skip


def plain(message: dict[str, Any]) -> Any:
    """Content of a message in one canonical form."""
    content = message["content"]
    if isinstance(content, list):
        read: list[Any] = []
        for part in content:
            if part["type"] == "text" and read and isinstance(read[-1], str):
                read[-1] += "\n" + part["text"]
            else:
                read.append(part["text"] if part["type"] == "text" else (part["image_url"]["url"],))
        content = read[0] if len(read) == 1 and isinstance(read[0], str) else tuple(read)
    found = message.get("tool_calls") or []
    return message["role"], content, json.dumps(found, sort_keys=True)


def shuffled(value: Any) -> Any:
    """The same JSON with every object's keys the other way round."""
    if isinstance(value, dict):
        return {key: shuffled(item) for key, item in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(st.lists(messages, max_size=5), st.lists(messages, max_size=3), st.lists(messages))
@settings(max_examples=200)
def test_hashes_are_shared_exactly_up_to_the_common_prefix(
    begin: list[Any], one: list[Any], two: list[Any]
) -> None:
    first = {"model": "m", "messages": begin + one}
    second = {"model": "m", "messages": begin + two, "temperature": 1}
    same = [plain(m) for m in begin + one] == [plain(m) for m in begin + two]
    assert (data(first) == data(second)) == same
    agree = common(data(first), data(second))
    assert agree >= len(data({"messages": begin}))
    assert common(chain(first), chain(second)) == agree // BLOCK


@given(st.lists(messages, max_size=4), st.dictionaries(words, words, max_size=3))
@settings(max_examples=100)
def test_json_order_and_spacing_do_not_matter(talk: list[Any], kwargs: dict[str, str]) -> None:
    body = {"model": "m", "messages": talk, "chat_template_kwargs": kwargs, "tools": [kwargs]}
    assert chain(body) == chain(shuffled(body), spaced=True)


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
def test_texts_share_their_common_bytes(begin: str, one: str, two: str) -> None:
    first, second = {"prompt": begin + one}, {"prompt": begin + two}
    agree = common((begin + one).encode(), (begin + two).encode())
    assert common(chain(first, TEXT), chain(second, TEXT)) == agree // BLOCK


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1), st.lists(st.integers(0, 2**32 - 1)))
def test_token_ids_share_their_common_prefix(begin: list[int], rest: list[int]) -> None:
    first, second = chain({"prompt": begin}, TEXT), chain({"prompt": begin + rest}, TEXT)
    assert common(first, second) == len(begin) * 4 // BLOCK == len(first)


# -- one prompt, several ways to say it


def test_three_apis_encode_one_chat_alike() -> None:
    chat = chain({"model": "m", "messages": [turn("system", LONG), turn("user", "hi " * 20)]})
    responses = {"model": "m", "instructions": LONG, "input": "hi " * 20}
    item = {"type": "message", "status": "completed", "id": "msg_1", "role": "user"}
    parts = {**item, "content": [{"type": "input_text", "text": "hi " * 20}]}
    anthropic = {"model": "m", "system": LONG, "messages": [turn("user", "hi " * 20)]}
    listed = {**anthropic, "system": [{"type": "text", "text": LONG, "cache_control": {"a": "b"}}]}
    assert chain(responses, RESPONSES) == chat
    assert chain({**responses, "input": [parts]}, RESPONSES) == chat
    assert chain(anthropic, ANTHROPIC) == chat
    assert chain(listed, ANTHROPIC) == chat


@pytest.mark.parametrize(
    "message",
    [
        turn("user", [{"type": "text", "text": LONG}]),
        turn("user", LONG, name=None, tool_calls=[]),
        turn("user", LONG, refusal=None, cache_control={"type": "ephemeral"}),
        turn("user", [LONG]),
    ],
)
def test_message_encodings_are_equivalent(message: dict[str, Any]) -> None:
    assert data({"messages": [message]}) == data({"messages": [turn("user", LONG)]})


@pytest.mark.parametrize(
    "message",
    [
        turn("user", LONG, name="eve"),
        turn("assistant", LONG),
        turn("user", LONG, tool_calls=[{"id": "1"}]),
        turn("tool", LONG, tool_call_id="1"),
        turn("user", [{"type": "text", "text": LONG}, image("http://a/b")]),
    ],
)
def test_everything_that_a_template_renders_counts(message: dict[str, Any]) -> None:
    assert data({"messages": [message]}) != data({"messages": [turn("user", LONG)]})


def test_first_of_several_prompts_counts() -> None:
    alone, both = data({"prompt": LONG}, TEXT), data({"prompt": [LONG, "more"]}, TEXT)
    assert both.startswith(alone)
    ids = data({"prompt": [[1, 2, 3], [4]]}, TEXT)
    assert ids.startswith(data({"prompt": [1, 2, 3]}, TEXT))
    assert read({"prompt": [1, 2]}, TEXT)[1] != read({"prompt": "ab"}, TEXT)[1]


# -- what a chain begins with


@pytest.mark.parametrize(
    "more",
    [
        {"model": "adapter"},
        {"cache_salt": "tenant"},
        {"chat_template": "{{ messages }}"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"documents": [{"title": "t"}]},
        {"reasoning_effort": "low"},
        {"mm_processor_kwargs": {"num_crops": 4}},
        {"truncate_prompt_tokens": 100},
    ],
)
def test_changes_of_the_beginning_change_every_block(more: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [turn("user", LONG)]}
    assert not set(chain(body)) & set(chain({**body, **more}))


@pytest.mark.parametrize(
    "more",
    [
        {"cache_salt": None},
        {"chat_template_kwargs": {}},
        {"documents": []},
        {"temperature": 0.5, "max_tokens": 9, "stream": True, "user": "u", "metadata": {"a": "b"}},
    ],
)
def test_irrelevant_fields_change_nothing(more: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [turn("user", LONG)]}
    assert chain(body) == chain({**body, **more})


def test_chains_start_alike_in_every_router_without_a_key() -> None:
    body = json.dumps({"model": "m", "messages": [turn("user", LONG)]}).encode()

    def of(hash_key: bytes, show_key: bytes) -> tuple[list[int], str]:
        reader = Identifier(hash_key, BLOCK, None, show_key, BytesPerToken())
        return list(reader.read(CHAT, body, b"", True).facts.chain), reader.digest(b"x")

    one, two = of(b"", b"one"), of(b"", b"two")
    assert one[0] == two[0]
    assert one[1] != two[1], "what is shown means nothing outside"
    assert of(b"shared" * 4, b"one")[0] != one[0]


# -- media


def test_images_are_identified_by_hash_and_never_embedded() -> None:
    big = "data:image/png;base64," + "A" * 5_000_000
    talk = [turn("user", [{"type": "text", "text": LONG}, image(big)]), turn("user", LONG)]
    changed = json.loads(json.dumps(talk))
    changed[0]["content"][1]["image_url"]["url"] = big[:-1] + "B"
    one, two = data({"messages": talk}), data({"messages": changed})
    assert len(one) == len(two) < 3 * len(LONG) + MEDIUM_BYTES
    assert len(LONG) <= common(one, two) < len(LONG) + 20
    assert not read({"messages": talk})[3], "its bytes do not tell its tokens"


def test_huge_image_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    hexdigest = xxhash.xxh3_128_hexdigest

    def counted(text: bytes) -> str:
        hashed.append(len(text))
        return hexdigest(text)

    monkeypatch.setattr(xxhash, "xxh3_128_hexdigest", counted)
    written: list[int] = []
    dumps = orjson.dumps

    def measured(value: Any, option: int | None = None) -> bytes:
        written.append(len(dumps(value, option=option)))
        return dumps(value, option=option)

    monkeypatch.setattr(orjson, "dumps", measured)
    data({"messages": [turn("user", [image("data:," + "A" * 2_000_000)])]})
    assert hashed == [2_000_006]
    assert max(written) < 200, "and never written out"


def test_media_id_replaces_its_content() -> None:
    named = turn("user", [image("data:1", uuid="cat")])
    again = turn("user", [{"type": "image_url", "image_url": None, "uuid": "cat"}])
    other = turn("user", [image("data:1", uuid="dog")])
    assert data({"messages": [named]}) == data({"messages": [again]})
    assert data({"messages": [named]}) != data({"messages": [other]})


def test_image_in_a_tool_result_is_hashed_too() -> None:
    source = {"type": "base64", "data": "A" * 100_000}
    result = {"type": "tool_result", "content": [{"type": "image", "source": source}]}
    body = {"messages": [turn("user", [result])]}
    assert len(data(body, ANTHROPIC)) < 400
    source["data"] = "A" * 99_999 + "B"
    assert data(body, ANTHROPIC) != data({"messages": [turn("user", [{**result, "content": 1}])]})


def test_cache_control_marks_are_no_part_of_the_prompt() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    call = {"type": "tool_use", "name": "f", "input": {"a": 1}}
    body = {"messages": [turn("user", [call])], "tools": [{"name": "f"}], "system": LONG}
    marked = {
        "messages": [turn("user", [{**call, **mark}], **mark)],
        "tools": [{"name": "f", **mark}],
        "system": [{"type": "text", "text": LONG, **mark}],
    }
    assert data(body, ANTHROPIC) == data(marked, ANTHROPIC)


@pytest.mark.parametrize("depth", [10, 100, 490])
def test_deep_nesting_is_safe(depth: int) -> None:
    nested = '{"a":[' * depth + "1" + "]}" * depth
    body = f'{{"tools":[{nested}],"messages":[{{"role":"user","content":[{nested}]}}]}}'
    reader = Identifier(b"", BLOCK, None, b"", BytesPerToken())
    assert len(reader.read(CHAT, body.encode(), b"", True).facts.chain) == 0 or depth < 200


# -- sessions and tokens


@pytest.mark.parametrize(
    ("name", "body", "session"),
    [
        ("user", {"user": "u1"}, b"u1"),
        ("session_id", {"session_id": 7}, b"7"),
        ("metadata.session_id", {"metadata": {"session_id": "s"}}, b"s"),
        ("metadata.session_id", {"metadata.session_id": "flat"}, b"flat"),
        ("a.b.c", {"a": {"b": {"c": "deep"}}}, b"deep"),
        ("a.b", {"a": "x"}, b""),
        ("a.b", {"a": {"b": {"c": 1}}}, b""),
        ("a.b", {}, b""),
        ("user", {"user": True}, b""),
    ],
)
def test_session_field_of_a_body(name: str, body: dict[str, Any], session: bytes) -> None:
    reader = Identifier(b"", BLOCK, SessionKey("body", name), b"", BytesPerToken())
    found = reader.read(CHAT, json.dumps({"model": "m", **body}).encode(), b"", False)
    assert found.facts.session == session


def test_bytes_per_token_are_learned_for_each_model() -> None:
    ratios = BytesPerToken()
    reader = Identifier(b"", 64, None, b"", ratios)
    body = json.dumps({"model": "m", "prompt": "x" * 3000}).encode()

    def facts() -> Any:
        return reader.read(TEXT, body, b"", True).facts

    assert (facts().tokens, facts().block_tokens, facts().size) == (750, 16.0, 3000)
    for _ in range(50):
        ratios.learn("m", facts().size, 1000)
    assert (facts().tokens, facts().block_tokens) == (1000, 64 / 3)
    ratios.learn("m", 3000, 1)
    assert 900 < facts().tokens <= 1000, "one odd report moves it little"
    ids = json.dumps({"model": "m", "prompt": list(range(500))}).encode()
    exact = reader.read(TEXT, ids, b"", True).facts
    assert (exact.tokens, exact.block_tokens, exact.size) == (500, 16.0, 0)


def test_learned_ratios_are_bounded_and_new_models_start_from_the_mean() -> None:
    ratios = BytesPerToken()
    for number in range(1000):
        ratios.learn(f"m{number}", 3000, 1000)
    assert len(ratios._known) == 256
    assert ratios.of("never seen") == pytest.approx(3.0)
    for size, tokens in ((100, 1), (0, 10), (10_000, 0)):
        ratios.learn("m1", size, tokens)
    assert ratios.of("m1") == pytest.approx(3.0)
