"""OpenAI API formats: request validation, responses and errors.

Parameters that would change the answer but are not simulated are rejected by name, as vLLM rejects
a bad value.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from endpoints.simulated_worker import tokens

FINGERPRINT = "emberline-simulated"
_COMPLETION_TOKENS = 16
# Parameters that change the answer's format, with their neutral values.
_NOT_SIMULATED = {
    "n": 1,
    "best_of": 1,
    "logprobs": None,
    "top_logprobs": None,
    "prompt_logprobs": None,
    "echo": False,
    "suffix": None,
    "use_beam_search": False,
}
_TYPES = {400: "BadRequestError", 404: "NotFoundError", 405: "MethodNotAllowedError"}


class ApiError(Exception):
    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param

    def body(self) -> bytes:
        kind = _TYPES.get(self.status, "ServiceUnavailableError")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.status}
        return dump({"error": error})


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A validated request. `max_tokens`: upper limit of generated tokens."""

    model: str
    chat: bool
    prompt: list[int]
    max_tokens: int
    min_tokens: int
    stream: bool
    include_usage: bool
    stops: tuple[str, ...]
    salt: str
    report: bool = False


@dataclass(slots=True)
class Shape:
    ask: CompletionRequest
    request_id: str
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, finish: str, usage: dict[str, Any]) -> bytes:
        message = {"role": "assistant", "content": text}
        content = {"message": message} if self.ask.chat else {"text": text}
        return dump(self._frame("chat.completion", [_choice(content, finish)]) | {"usage": usage})

    def chunk(self, text: str | None, finish: str | None = None) -> bytes:
        """Return one event; text None starts a chat answer."""
        opening = {"role": "assistant", "content": ""}
        delta = opening if text is None else {"content": text}
        content = {"delta": delta} if self.ask.chat else {"text": text or ""}
        return _event(self._frame("chat.completion.chunk", [_choice(content, finish)]))

    def usage_chunk(self, usage: dict[str, Any]) -> bytes:
        return _event(self._frame("chat.completion.chunk", []) | {"usage": usage})

    def _frame(self, chat_kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        prefix = "chatcmpl" if self.ask.chat else "cmpl"
        return {
            "id": f"{prefix}-{self.request_id}",
            "object": chat_kind if self.ask.chat else "text_completion",
            "created": self.created,
            "model": self.ask.model,
            "choices": choices,
            "system_fingerprint": FINGERPRINT,
        }


def _choice(content: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "logprobs": None, "finish_reason": finish, **content}


DONE = b"data: [DONE]\n\n"


def usage(prompt: int, generated: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + generated,
        "completion_tokens": generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def load(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
        dump(value)  # json accepts lone surrogates
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"The body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body is not a JSON object.")
    return value


def check(
    body: dict[str, Any], chat: bool, models: tuple[str, ...], longest: int
) -> CompletionRequest:
    model = check_model(body, models)
    for name, plain in _NOT_SIMULATED.items():
        if body.get(name, plain) not in (plain, None, False):
            raise ApiError(400, f"A simulated worker does not support {name}.", name)
    prompt = chat_tokens(body) if chat else _completion_tokens(body)
    if not prompt:
        raise ApiError(400, "The prompt is empty.", "messages" if chat else "prompt")
    room = longest - len(prompt)
    default = room if chat else min(room, _COMPLETION_TOKENS)
    most = _integer(body, "max_completion_tokens", None, 1) if chat else None
    most = most or _integer(body, "max_tokens", None, 1) or default
    if room < 1 or most > room:
        raise ApiError(
            400,
            f"This model's maximum context length is {longest} tokens. However, you requested "
            f"{max(most, 1)} output tokens and your prompt contains {len(prompt)} input tokens.",
            "max_tokens",
        )
    least = _integer(body, "min_tokens", 0, 0) or 0
    if least > most:
        raise ApiError(400, "min_tokens is more than max_tokens.", "min_tokens")
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise ApiError(400, "stream_options is not an object.", "stream_options")
    extra = body.get("vllm_xargs")
    return CompletionRequest(
        model=model,
        chat=chat,
        prompt=prompt,
        max_tokens=most,
        min_tokens=most if body.get("ignore_eos") else least,
        stream=_boolean(body, "stream"),
        include_usage=bool(options.get("include_usage")),
        stops=_stops(body),
        salt=str(body.get("cache_salt") or ""),
        report=isinstance(extra, dict) and extra.get("kv_cache_report_mode") == "full",
    )


def check_model(body: dict[str, Any], models: tuple[str, ...]) -> str:
    model = body.get("model") or models[0]
    if model not in models:
        raise ApiError(404, f"The model `{model}` does not exist.", "model")
    return str(model)


def chat_tokens(body: dict[str, Any]) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a non-empty list.", "messages")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ApiError(400, "A message needs a role and a content.", "messages")
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        if not isinstance(content, str | list | None) or not all(
            isinstance(part, dict) and isinstance(part.get("text", ""), str) for part in parts
        ):
            raise ApiError(400, "A message's content is text or a list of parts.", "messages")
    return tokens.encode(tokens.chat_prompt(messages, body.get("tools")))


def _completion_tokens(body: dict[str, Any]) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return tokens.encode(prompt)
    if isinstance(prompt, list) and all(type(item) is int for item in prompt):
        return list(prompt)
    if isinstance(prompt, list) and len(prompt) > 1:
        raise ApiError(400, "A simulated worker supports one prompt per request.", "prompt")
    raise ApiError(400, "prompt must be a string or a list of token IDs.", "prompt")


def _integer(body: dict[str, Any], name: str, default: int | None, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or value < least:
        raise ApiError(400, f"{name} must be at least {least}, got {value}.", name)
    return value


def _boolean(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise ApiError(400, f"{name} must be true or false.", name)


def _stops(body: dict[str, Any]) -> tuple[str, ...]:
    value = body.get("stop") or []
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise ApiError(400, "stop must be a string or a list of strings.", "stop")
    return tuple(stops)


def _event(value: Any) -> bytes:
    return b"data: " + dump(value) + b"\n\n"
