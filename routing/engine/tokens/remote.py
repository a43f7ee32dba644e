"""Tokenize prompts by a worker: /tokenize, or the renderer of the request's path (vLLM 0.32).

Prompts with media are rejected: blocks of different images would have equal tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from routing.engine.fleet.probe_request import ProbeError
from routing.engine.tokens import messages as chat_messages
from routing.engine.tokens.outcomes import (
    BAD_REQUEST,
    MULTIMODAL,
    REMOTE_ERROR,
    TOO_LARGE,
    UNSUPPORTED_FIELD,
    NoTokens,
)
from routing.engine.tokens.requests import ChatPrompt, Json, TextPrompt

PATH = "/tokenize"
# Paths whose requests a worker renders to token ids, with its own template and parsers.
RENDERED_PATHS = frozenset((b"/v1/chat/completions", b"/v1/messages", b"/v1/responses"))
_MEDIA_TYPES = frozenset(
    (
        *("image", "image_url", "input_image", "image_embeds", "audio_url", "input_audio"),
        *("video", "video_url", "file", "input_file", "document", "computer_screenshot"),
    )
)
_MOST_OBJECTS = 100_000
_TEXT_TYPES = ("input_text", "output_text")  # of /v1/responses; /tokenize accepts only "text"

# path, body, seconds -> status, body; raises ProbeError
Ask = Callable[[str, bytes, float], Awaitable[tuple[int, bytes]]]


def tokenize_body(prompt: TextPrompt | ChatPrompt, model: str) -> bytes:
    body: Json
    if isinstance(prompt, TextPrompt):
        body = {"prompt": prompt.text}
    else:
        chat_messages.read_conversation(
            prompt.messages, False, prompt.responses
        )  # raises for media
        kwargs = dict(prompt.kwargs)
        body = {
            "messages": [_message(message, prompt.responses) for message in prompt.messages],
            "add_generation_prompt": kwargs.pop("add_generation_prompt"),
            "continue_final_message": kwargs.pop("continue_final_message"),
            # Documents and reasoning effort exist for chats but not for /tokenize.
            "chat_template_kwargs": kwargs,
        }
        if prompt.tools is not None:
            body["tools"] = prompt.tools
    body["add_special_tokens"] = prompt.add_special_tokens
    if model:
        body["model"] = model
    try:
        return orjson.dumps(body)
    except TypeError:
        raise NoTokens(BAD_REQUEST, "not serializable as JSON") from None


def _message(message: Json, responses: bool) -> Json:
    """Normalize a message like the chat request model."""
    changed: Json = {}
    if "reasoning_content" in message:  # old name, unknown to /tokenize
        changed = {name: value for name, value in message.items() if name != "reasoning_content"}
        if changed.get("reasoning") is None:
            changed["reasoning"] = message["reasoning_content"]
    content = message.get("content")
    if responses and type(content) is list:
        changed = changed or dict(message)
        changed["content"] = [
            {**part, "type": "text"} if _is_text(part) else part for part in content
        ]
    return changed or message


def _is_text(part: Any) -> bool:
    return type(part) is dict and part.get("type") in _TEXT_TYPES


def render_body(data: Json) -> bytes:
    """Return a request for a worker's renderer. Raise NoTokens for media, which it would fetch."""
    if data.get("previous_response_id"):
        raise NoTokens(UNSUPPORTED_FIELD, "previous_response_id")
    stack: list[Any] = [data.get("messages"), data.get("input"), data.get("system")]
    left = _MOST_OBJECTS
    while stack:
        item = stack.pop()
        if type(item) is list:
            stack.extend(item)
        elif type(item) is dict:
            kind = item.get("type")
            if type(kind) is str and kind in _MEDIA_TYPES:
                raise NoTokens(MULTIMODAL, kind)
            stack += [item.get("content"), item.get("output")]
        left -= 1
        if left < 0:
            raise NoTokens(TOO_LARGE)
    try:
        return orjson.dumps({**data, "stream": False, "stream_options": None})
    except TypeError:
        raise NoTokens(BAD_REQUEST, "not serializable as JSON") from None


async def tokenize(ask: Ask, body: bytes, timeout_s: float, path: str = PATH) -> array[int]:
    """Return the tokens of a request to `/tokenize` or to a renderer. Raise NoTokens."""
    try:
        status, answer = await ask(path, body, timeout_s)
    except ProbeError as error:
        raise NoTokens(REMOTE_ERROR, str(error)) from None
    if status == 400:
        raise NoTokens(BAD_REQUEST, "the worker rejects the prompt")
    try:
        data = orjson.loads(answer) if status == 200 else None
        tokens = None
        if type(data) is dict:
            if data.get("features") or data.get("content_parts"):
                raise NoTokens(MULTIMODAL)
            tokens = data.get("tokens" if path == PATH else "token_ids")
        if type(tokens) is list:
            return array("I", tokens)
    except (orjson.JSONDecodeError, TypeError, OverflowError):
        pass
    raise NoTokens(REMOTE_ERROR, f"the worker responded {status}")
