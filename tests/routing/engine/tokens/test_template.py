"""Chat templates render the same text as vLLM, for requests of every path."""

from __future__ import annotations

from typing import Any

import pytest

from routing.engine.tokens import requests
from routing.engine.tokens.outcomes import (
    BAD_REQUEST,
    MULTIMODAL,
    TEMPLATE_ERROR,
    UNSUPPORTED_FIELD,
    WITHOUT,
    NoTokens,
)
from routing.engine.tokens.requests import ChatPrompt, IdsPrompt, ServerDefaults, TextPrompt
from routing.engine.tokens.segments import TokenSequence
from routing.engine.tokens.template import ChatTemplates, TemplateUnusable
from tests.routing.engine.tokens.questions import TEMPLATES, golden, template

SPECIAL = {
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "unk_token": "<|endoftext|>",
    "pad_token": "<|im_end|>",
}
MADE = {name: ChatTemplates({"default": template(name)}, SPECIAL) for name in TEMPLATES}
GOLDEN = golden()
CHAT = b"/v1/chat/completions"


def named(pair: tuple[dict[str, Any], dict[str, Any]]) -> str:
    return f"{pair[0]['template']}: {pair[0]['name']}"


def render(question: dict[str, Any]) -> str:
    defaults = ServerDefaults(**question.get("server", {}))
    prompt = requests.read_prompt(question["path"].encode(), question["body"], defaults)
    if isinstance(prompt, TextPrompt):
        return prompt.text
    assert isinstance(prompt, ChatPrompt)
    return MADE[question["template"]].pick(prompt.tools).render(prompt, defaults)


@pytest.mark.parametrize("pair", [pair for pair in GOLDEN if "text" in pair[1]], ids=named)
def test_rendered_text_equals_that_of_vllm(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    question, answer = pair
    assert render(question) == answer["text"]


@pytest.mark.parametrize("pair", [pair for pair in GOLDEN if "error" in pair[1]], ids=named)
def test_bodies_rejected_by_vllm_have_no_tokens(
    pair: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    with pytest.raises(NoTokens) as caught:
        render(pair[0])
    wanted: tuple[str, ...] = (BAD_REQUEST, TEMPLATE_ERROR, UNSUPPORTED_FIELD)
    if pair[0]["name"] == "image":
        wanted = (MULTIMODAL,)
    assert caught.value.reason in wanted


@pytest.mark.parametrize("name", TEMPLATES)
def test_content_format_is_detected_as_in_vllm(name: str) -> None:
    formats = {
        answer["format"]
        for question, answer in GOLDEN
        if question["template"] == name
        and "content_format" not in question.get("server", {})
        and answer.get("format")
    }
    assert formats == {MADE[name].pick(None).content_format}


def test_requests_are_not_modified() -> None:
    before, after = golden(), golden()
    for question, answer in after:
        if "text" in answer:
            render(question)
    assert [question for question, _ in before] == [question for question, _ in after]


def refusal(path: bytes, body: dict[str, Any], **defaults: Any) -> str:
    with pytest.raises(NoTokens) as caught:
        requests.read_prompt(path, body, ServerDefaults(**defaults))
    assert caught.value.reason in WITHOUT
    return caught.value.reason


HI = [{"role": "user", "content": "Hi"}]
TRANSFER = {"kv_transfer_params": {"prompt_token_ids": [1]}}
SYSTEM = {"role": "system", "content": "x"}
IMAGE = {"role": "user", "content": [{"type": "image"}]}
RESULT = {"role": "user", "content": [{"type": "tool_result"}]}


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (b"/v1/embeddings", {"input": "x"}, "unsupported_path"),
        (CHAT, {}, "bad_request"),
        (CHAT, {"messages": HI, "chat_template": "{{ messages }}"}, "unsupported_field"),
        (CHAT, {"messages": HI, "truncate_prompt_tokens": 5}, "unsupported_field"),
        (CHAT, {"messages": HI, "truncate_prompt_tokens": 0}, "unsupported_field"),
        (CHAT, {"messages": HI, "mm_processor_kwargs": {"a": 1}}, "unsupported_field"),
        (CHAT, {"messages": HI, **TRANSFER}, "unsupported_field"),
        (CHAT, {"messages": HI, "chat_template_kwargs": {"tools": []}}, "unsupported_field"),
        (CHAT, {"messages": HI, "chat_template_kwargs": {"messages": []}}, "unsupported_field"),
        (CHAT, {"messages": HI, "chat_template_kwargs": {"n": 1e30}}, "unsupported_field"),
        (CHAT, {"messages": HI, "chat_template_kwargs": 5}, "bad_request"),
        (CHAT, {"messages": HI, "add_generation_prompt": "yes"}, "unsupported_field"),
        (CHAT, {"messages": HI, "documents": ["x"]}, "bad_request"),
        (b"/v1/completions", {"prompt": ""}, "bad_request"),
        (b"/v1/completions", {"prompt": []}, "bad_request"),
        (b"/v1/completions", {"prompt": [1, -1]}, "bad_request"),
        (b"/v1/completions", {"prompt": [1, True]}, "bad_request"),
        (b"/v1/completions", {"prompt": [1, 2**32]}, "bad_request"),
        (b"/v1/completions", {"prompt": ["a", "b"]}, "several_prompts"),
        (b"/v1/completions", {"prompt": [[1], [2]]}, "several_prompts"),
        (b"/v1/completions", {"prompt": "a", "suffix": "b"}, "unsupported_field"),
        (b"/v1/completions", {"prompt_embeds": "AAAA"}, "multimodal"),
        (b"/v1/responses", {"input": "a", "tools": [{}]}, "unsupported_field"),
        (b"/v1/responses", {"input": "a", "previous_response_id": "r"}, "unsupported_field"),
        (b"/v1/responses", {"input": "a", "truncation": "auto"}, "unsupported_field"),
        (b"/v1/responses", {"input": [{"type": "reasoning"}]}, "unsupported_field"),
        (b"/v1/messages", {"messages": HI, "tools": [{}]}, "unsupported_field"),
        (b"/v1/messages", {"messages": [*HI, SYSTEM]}, "unsupported_field"),
        (b"/v1/messages", {"messages": [IMAGE]}, "multimodal"),
        (b"/v1/messages", {"messages": [RESULT]}, "unsupported_field"),
    ],
)  # fmt: skip
def test_unsupported_features_are_reported(path: bytes, body: dict[str, Any], reason: str) -> None:
    assert refusal(path, body) == reason


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "text", "text": "a", "image_url": "x"}, "multimodal"),
        ({"type": "image_url"}, "multimodal"),
        ({"image_url": "x"}, "multimodal"),
        ({"type": "video_url", "video_url": {}}, "multimodal"),
        ({"type": "text", "text": "a", "uuid": "u"}, "unsupported_field"),
        ({"type": "tool_reference"}, "unsupported_field"),
        ({"type": "text"}, "unsupported_field"),
        ({"type": "novel", "text": "a"}, "bad_request"),
        ({"type": ["text"], "text": "a"}, "bad_request"),
        ({"type": "text", "text": "a", "n": 1e20}, "unsupported_field"),
        (5, "bad_request"),
    ],
)
def test_parts_that_are_no_plain_text(part: Any, reason: str) -> None:
    text = chat(messages=[{"role": "user", "content": [part]}])
    for name in ("smollm2", "parts"):
        with pytest.raises(NoTokens) as caught:
            MADE[name].pick(None).render(text, ServerDefaults())
        assert caught.value.reason == reason


def test_only_templates_that_reference_content_can_be_extended() -> None:
    text = chat(continue_final_message=True, add_generation_prompt=False)
    made = ChatTemplates({"default": "{{ messages | tojson }}"}, {}).pick(None)
    with pytest.raises(NoTokens):
        made.render(text, ServerDefaults())
    made = ChatTemplates({"default": "{{ messages | tojson }}{# content #}"}, {}).pick(None)
    assert made.render(text, ServerDefaults()) == '[{"role": "user", "content": "Hi'


def test_token_ids_need_no_template() -> None:
    for prompt in ([1, 2, 3], [[1, 2, 3]]):
        read = requests.read_prompt(b"/v1/completions", {"prompt": prompt}, ServerDefaults())
        assert isinstance(read, IdsPrompt)
        assert TokenSequence(read.data).ids == [1, 2, 3]


def test_tools_may_be_disabled_by_the_server() -> None:
    body = {"messages": HI, "tools": [{"function": {"name": "f"}}], "tool_choice": "none"}
    kept = requests.read_prompt(CHAT, body, ServerDefaults())
    dropped = requests.read_prompt(CHAT, body, ServerDefaults(no_tools_when_none=True))
    assert isinstance(kept, ChatPrompt) and kept.tools
    assert isinstance(dropped, ChatPrompt) and dropped.tools is None


def chat(**body: Any) -> ChatPrompt:
    read = requests.read_prompt(CHAT, {"messages": HI, **body}, ServerDefaults())
    assert isinstance(read, ChatPrompt)
    return read


def test_model_may_have_a_separate_template_for_tools() -> None:
    both = ChatTemplates({"default": "plain", "tool_use": "with tools"}, {})
    tools = [{"function": {"name": "f"}}]
    for requested, text in ((chat(), "plain"), (chat(tools=tools), "with tools")):
        assert both.pick(requested.tools).render(requested, ServerDefaults()) == text
    with pytest.raises(NoTokens):
        ChatTemplates({"rag": "x"}, {}).pick(None)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% set x = messages[0].update({'role': 'x'}) %}",
        "{{ ''.format.__globals__.x }}",
        "{% for x in range(10000000) %}{% endfor %}",
        "{{ 1 / 0 }}",
        "{{ messages[9].content }}",
        "{{ 'a' + 1 }}",
        "{{ raise_exception('no') }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
    ],
)
def test_templates_are_sandboxed(source: str) -> None:
    made = ChatTemplates({"default": source}, {}).pick(None)
    with pytest.raises(NoTokens) as caught:
        made.render(chat(), ServerDefaults())
    assert caught.value.reason == TEMPLATE_ERROR


@pytest.mark.parametrize("source", ["{% for %}", "{{ x", "{% nonsense %}"])
def test_invalid_template_is_detected_at_once(source: str) -> None:
    with pytest.raises(TemplateUnusable):
        ChatTemplates({"default": source}, {})
    with pytest.raises(TemplateUnusable):
        ChatTemplates({}, {})
