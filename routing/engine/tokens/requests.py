"""Extract the prompt of a request for tokenization: token ids, one text or one chat.

Applies the defaults, merging and special-token rules of vLLM 0.32's request models, or raises
NoTokens.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from routing.engine.kv import chain
from routing.engine.tokens import messages as chat_messages
from routing.engine.tokens.outcomes import (
    BAD_REQUEST,
    MULTIMODAL,
    SEVERAL_PROMPTS,
    UNSUPPORTED_FIELD,
    UNSUPPORTED_PATH,
    NoTokens,
)

Json = dict[str, Any]

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# chat_template_kwargs names that the renderer would take instead of the template.
_RENDERER_NAMES = frozenset(
    (
        *("chat_template", "conversation", "max_length", "messages", "padding", "self"),
        *("return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize"),
        *("tokenizer_kwargs", "tools", "truncation"),
    )
)
# Paths without these fields always begin an answer.
_NEW_ANSWER = {"add_generation_prompt": True, "continue_final_message": False}
# Fields whose effect on the prompt only the engine determines.
_UNSUPPORTED = ("truncate_prompt_tokens", "mm_processor_kwargs", "media_io_kwargs")


@dataclass(frozen=True)
class ServerDefaults:
    """Worker options that change prompts."""

    template_kwargs: Json = field(default_factory=dict)  # --default-chat-template-kwargs
    content_format: str = "auto"  # --chat-template-content-format
    no_tools_when_none: bool = False  # --exclude-tools-when-tool-choice-none


@dataclass(slots=True, eq=False)
class IdsPrompt:
    """Prompt of packed token ids (kv.chain)."""

    data: bytes


@dataclass(slots=True, eq=False)
class TextPrompt:
    """One text, with or without special tokens around it."""

    text: str
    add_special_tokens: bool


@dataclass(slots=True, eq=False)
class ChatPrompt:
    """Chat messages and the request's own `kwargs`.

    `messages` are the request's objects; renderers must copy them.
    """

    messages: list[Any]
    tools: list[Json] | None
    kwargs: Json
    add_special_tokens: bool
    responses: bool = False


Prompt = IdsPrompt | TextPrompt | ChatPrompt


def read_prompt(path: bytes, data: Json, defaults: ServerDefaults) -> Prompt:
    reader = _READERS.get(path)
    if reader is None:
        raise NoTokens(UNSUPPORTED_PATH)
    for name in _UNSUPPORTED:
        if data.get(name) not in (None, {}):
            raise NoTokens(UNSUPPORTED_FIELD, name)
    transfer = data.get("kv_transfer_params")
    if type(transfer) is dict and transfer.get("prompt_token_ids") is not None:
        raise NoTokens(UNSUPPORTED_FIELD, "kv_transfer_params")
    return reader(data, defaults)


def _read_flag(data: Json, name: str, default: bool) -> bool:
    value = data.get(name, default)
    if type(value) is not bool:  # pydantic would coerce others
        raise NoTokens(UNSUPPORTED_FIELD, name)
    return value


def _completion(data: Json, _: ServerDefaults) -> Prompt:
    if data.get("prompt_embeds") is not None:
        raise NoTokens(MULTIMODAL, "prompt_embeds")
    if data.get("suffix") is not None:
        raise NoTokens(UNSUPPORTED_FIELD, "suffix")
    prompt = data.get("prompt")
    if type(prompt) is list and prompt and type(prompt[0]) in (str, list):
        if len(prompt) > 1:
            raise NoTokens(SEVERAL_PROMPTS)
        prompt = prompt[0]
    if type(prompt) is str and prompt:
        return TextPrompt(prompt, _read_flag(data, "add_special_tokens", True))
    if type(prompt) is list and set(map(type, prompt)) == {int}:
        with contextlib.suppress(OverflowError):
            return IdsPrompt(chain.pack_tokens(prompt))
    raise NoTokens(BAD_REQUEST, "prompt")


def _chat(data: Json, defaults: ServerDefaults) -> Prompt:
    messages = data.get("messages")
    if type(messages) is not list:
        raise NoTokens(BAD_REQUEST, "messages")
    if data.get("chat_template") is not None:
        raise NoTokens(UNSUPPORTED_FIELD, "chat_template")
    tools = chat_messages.read_tools(data.get("tools"))
    if defaults.no_tools_when_none and data.get("tool_choice") == "none":
        tools = None
    documents = data.get("documents")
    if documents is not None and not _are_documents(documents):
        raise NoTokens(BAD_REQUEST, "documents")
    kwargs = _merge_template_kwargs(
        data,
        {
            "add_generation_prompt": _read_flag(data, "add_generation_prompt", True),
            "continue_final_message": _read_flag(data, "continue_final_message", False),
            "documents": documents,
        },
        data.get("reasoning_effort"),
    )
    return ChatPrompt(messages, tools, kwargs, _read_flag(data, "add_special_tokens", False))


def _are_documents(value: Any) -> bool:
    return type(value) is list and all(
        type(item) is dict and all(type(text) is str for text in item.values()) for item in value
    )


def _merge_template_kwargs(data: Json, own: Json, effort: Any) -> Json:
    """Return the request's chat_template_kwargs, overridden by its own fields."""
    template_kwargs = data.get("chat_template_kwargs")
    if template_kwargs is None:
        template_kwargs = {}
    elif type(template_kwargs) is not dict:
        raise NoTokens(BAD_REQUEST, "chat_template_kwargs")
    elif not _RENDERER_NAMES.isdisjoint(template_kwargs):
        raise NoTokens(UNSUPPORTED_FIELD, "chat_template_kwargs")
    chat_messages.check_exact(template_kwargs)
    if effort is not None:
        if effort not in _EFFORTS:
            raise NoTokens(BAD_REQUEST, "reasoning_effort")
        own["reasoning_effort"] = effort
        if "enable_thinking" not in template_kwargs:
            own["enable_thinking"] = effort != "none"
    return template_kwargs | {name: value for name, value in own.items() if value is not None}


def _responses(data: Json, _: ServerDefaults) -> Prompt:
    """Text only: tools, reasoning and earlier responses are handled by the engine."""
    for name in ("tools", "previous_response_id", "prompt", "reasoning", "previous_input_messages"):
        if data.get(name):
            raise NoTokens(UNSUPPORTED_FIELD, name)
    if data.get("truncation", "disabled") not in (None, "disabled"):
        raise NoTokens(UNSUPPORTED_FIELD, "truncation")
    messages: list[Any] = []
    instructions, entries = data.get("instructions"), data.get("input")
    if instructions:
        if type(instructions) is not str:
            raise NoTokens(BAD_REQUEST, "instructions")
        messages.append({"role": "system", "content": instructions})
    if type(entries) is str:
        messages.append({"role": "user", "content": entries})
    elif type(entries) is list and entries:
        messages += [_responses_item(item) for item in entries]
    else:
        raise NoTokens(BAD_REQUEST, "input")
    kwargs = _merge_template_kwargs(data, dict(_NEW_ANSWER), None)
    # Intended: this request model uses the tokenizer's default for special tokens.
    return ChatPrompt(messages, None, kwargs, add_special_tokens=True, responses=True)


def _responses_item(item: Any) -> Json:
    if type(item) is not dict:
        raise NoTokens(BAD_REQUEST, "input")
    if item.get("type", "message") != "message" or item.get("status") not in (None, "completed"):
        raise NoTokens(UNSUPPORTED_FIELD, "input")
    role, content = item.get("role"), item.get("content")
    if role == "assistant":
        if type(content) is list:  # the engine uses the first part only
            content = content[0].get("text") if content and type(content[0]) is dict else None
        if type(content) is not str:
            raise NoTokens(UNSUPPORTED_FIELD, "input")
    elif role not in ("user", "system", "developer"):
        raise NoTokens(BAD_REQUEST, "input")
    return {"role": role, "content": content}


def _anthropic(data: Json, _: ServerDefaults) -> Prompt:
    """Text only: other Anthropic blocks depend on the worker's template."""
    for name in ("tools", "tool_choice", "thinking", "output_config"):
        if data.get(name):
            raise NoTokens(UNSUPPORTED_FIELD, name)
    turns = data.get("messages")
    if type(turns) is not list or not turns:
        raise NoTokens(BAD_REQUEST, "messages")
    messages: list[Any] = []
    system = "".join(
        text
        for text in _text_blocks(data.get("system") or "")
        # A separate block is dropped whole; a plain string keeps the line until the template.
        if type(data["system"]) is str or not text.startswith(chat_messages.BILLING_HEADER)
    )
    if system:
        messages.append({"role": "system", "content": system})
    for item in turns:
        role = item.get("role") if type(item) is dict else None
        if role == "system":
            raise NoTokens(UNSUPPORTED_FIELD, "a system message among the others")
        if role not in ("user", "assistant"):
            raise NoTokens(BAD_REQUEST, "messages")
        message = _anthropic_message(role, item.get("content"))
        if message is not None:
            messages.append(message)
    kwargs = _merge_template_kwargs(data, dict(_NEW_ANSWER), None)
    return ChatPrompt(messages, None, kwargs, add_special_tokens=False)


def _anthropic_message(role: str, content: Any) -> Json | None:
    if type(content) is str:
        return {"role": role, "content": content}
    texts = _text_blocks(content)
    if not texts:
        return None if role == "user" else {"role": role}
    if len(texts) == 1:
        return {"role": role, "content": texts[0]}
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def _text_blocks(content: Any) -> list[str]:
    if type(content) is str:
        return [content] if content else []
    if type(content) is not list:
        raise NoTokens(BAD_REQUEST, "content")
    out: list[str] = []
    for block in content:
        if type(block) is not dict:
            raise NoTokens(BAD_REQUEST, "content")
        kind, text = block.get("type"), block.get("text")
        if kind == "image":
            raise NoTokens(MULTIMODAL)
        if kind != "text":
            raise NoTokens(UNSUPPORTED_FIELD, "content")
        if type(text) is str and text:
            out.append(text)
    return out


_READERS = {
    b"/v1/completions": _completion,
    b"/v1/chat/completions": _chat,
    b"/v1/responses": _responses,
    b"/v1/messages": _anthropic,
}
