"""Engine parameters of a request, and its body as sent to a worker.

Two fields are added: `stream_options.include_usage`, so that the engine reports a stream's tokens,
and `cache_salt`, which isolates keys' KV caches. Paths are compared percent-decoded, as workers
read them.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson

from routing.engine.errors import Refusal

DEFAULT_COMPLETION: Final = 1024  # reserved if the request has no limit
_MAX_TOKENS: Final = 10**9
_MAX_CHOICES: Final = 1024

_CHAT: Final = b"/v1/chat/completions"
_USAGE_ON_REQUEST: Final = frozenset((_CHAT, b"/v1/completions", b"/invocations"))
_SCORING: Final = frozenset(
    (
        *(b"/v1/embeddings", b"/v2/embed", b"/pooling", b"/classify", b"/score", b"/v1/score"),
        *(b"/rerank", b"/v1/rerank", b"/v2/rerank", b"/generative_scoring"),
    )
)
_SALTED: Final = frozenset(
    (
        *(*_USAGE_ON_REQUEST, b"/v1/responses", b"/v1/messages", b"/inference/v1/generate"),
        *(b"/v1/chat/completions/batch", b"/v1/systemone"),
        *(_SCORING - {b"/v2/embed"}),
    )
)
_UNSALTED: Final = frozenset((b"/v2/embed", b"/cohere/v2/chat"))  # prompts without a cache_salt
_WHOLE_PROMPT_TASKS: Final = ("token_embed", "token_classify", "plugin")
# Without generation and caching: templates, tokenizers, control.
_WITHOUT_MODEL: Final = frozenset(
    (
        *(b"/tokenize", b"/detokenize", b"/version", b"/v1/messages/count_tokens"),
        *(b"/v1/chat/completions/render", b"/v1/chat/completions/derender"),
        *(b"/v1/completions/render", b"/v1/completions/derender"),
        *(b"/v1/responses/render", b"/v1/messages/render"),
        *(b"/v1/load_lora_adapter", b"/v1/unload_lora_adapter"),
    )
)
_JSON_PATHS: Final = _SALTED | _UNSALTED | _WITHOUT_MODEL - {b"/version"}
_MODEL_ROOTS: Final = (b"/v1/", b"/v2/", b"/cohere/", b"/inference/")
# Stream events before the first token; chats have one per choice.
_OPENING_EVENTS: Final = {b"/v1/messages": 2, b"/v1/responses": 4}


class EngineRequest:
    """Fields of a request that the engine acts on. `path`: percent-decoded. `answers`: texts to
    generate; `choices`: per prompt. `most`: token limit of one answer, 0: none. `adds_usage`: the
    router requested the stream's usage. `isolated`: the body has the router's salt; `opening`: text
    to insert while streaming the body. `skips_cache`: the engine computes the whole prompt,
    whatever it has cached. `previous_response`: ID of the stored response that it continues.
    """

    stream: bool = False
    adds_usage: bool = False
    background: bool = False
    isolated: bool = False
    skips_cache: bool = False
    previous_response: str = ""
    choices: int = 1
    answers: int = 1
    most = 0
    opening = b""

    def __init__(self, path: bytes) -> None:
        self.path = unquote_to_bytes(path) if b"%" in path else path

    @property
    def completion(self) -> int:
        return (self.most or DEFAULT_COMPLETION) * self.answers


def path_uses_model(path: bytes) -> bool:
    """Return True if a POST may cost an engine tokens."""
    if path in _SALTED:
        return True
    return path.startswith(_MODEL_ROOTS) and path not in _WITHOUT_MODEL


def path_generates(path: bytes) -> bool:
    return path not in _SCORING


def can_isolate(path: bytes) -> bool:
    return path in _SALTED


def needs_isolation(path: bytes) -> bool:
    """Return True for a path with prompts, whose cache another request could hit."""
    return path in _SALTED or path in _UNSALTED


def takes_json(path: bytes) -> bool:
    """Return True if a POST must have a JSON body."""
    return path in _JSON_PATHS


def opening_events(path: bytes, choices: int) -> int:
    return choices if path == _CHAT else _OPENING_EVENTS.get(path, 0)


def must_read(body: bytes) -> bool:
    """Return False if the body certainly neither requests a stream nor continues a stored response
    (names may be escaped).
    """
    return b'"stream"' in body or b'"previous_response_id"' in body or b"\\u00" in body


def read_parameters(ask: EngineRequest, data: dict[str, Any]) -> None:
    """Fill in the parameters present in the body."""
    get = data.get
    if get("stream"):  # vLLM's own condition for stream_options
        ask.stream = True
    if get("background"):
        ask.background = True
    if skips_cache(ask.path, data):
        ask.skips_cache = True
    previous = get("previous_response_id")
    if type(previous) is str:
        ask.previous_response = previous
    if ask.path in _SCORING:
        ask.answers = 0
        return
    choices, prompts = get("n"), get("prompt")
    if choices is not None and ask.path in _USAGE_ON_REQUEST:  # ignored by other paths
        ask.choices = ask.answers = min(max(_parse_int(choices), 1), _MAX_CHOICES)
    if type(prompts) is list and prompts and type(prompts[0]) is not int:
        ask.answers *= len(prompts)
    most = get("max_completion_tokens")
    most = get("max_tokens") if most is None else most
    most = get("max_output_tokens") if most is None else most
    if most is not None:
        number = most if type(most) is int else _parse_int(most)
        ask.most = min(max(number, 0), _MAX_TOKENS)


def reads_cache(ask: EngineRequest) -> bool:
    return path_generates(ask.path) and not ask.skips_cache


def skips_cache(path: bytes, data: dict[str, Any]) -> bool:
    """Return True if vLLM does not read its prefix cache for this request: its output for prompt
    tokens would lack those cached (SamplingParams and PoolingParams.skip_reading_prefix_cache).
    """
    get = data.get
    if path in _SCORING:
        return path == b"/pooling" and get("task") in _WHOLE_PROMPT_TASKS
    if path == b"/inference/v1/generate":
        inner = get("sampling_params")
        get = inner.get if type(inner) is dict else get
    if get("prompt_logprobs") is not None or get("prompt_logprob_token_ids") is not None:
        return True
    if get("skip_reading_prefix_cache"):
        return True
    if not get("echo"):
        return False
    # Chats have a default for `top_logprobs`, completions none for `logprobs`.
    return "messages" in data or get("logprobs") is not None


def usage_fields(ask: EngineRequest, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields to set so that a stream's usage is reported; {} if it already is."""
    if not ask.stream or ask.path not in _USAGE_ON_REQUEST:
        return {}
    if ask.path == b"/invocations" and data.keys().isdisjoint(("messages", "prompt")):
        return {}
    options = data.get("stream_options") or {}
    if type(options) is not dict or options.get("include_usage"):
        return {}
    ask.adds_usage = True
    # vLLM ignores continuous_usage_stats without include_usage; with it every event would change.
    fields = {name: value for name, value in options.items() if name != "continuous_usage_stats"}
    return {"stream_options": {**fields, "include_usage": True}}


def with_fields(body: bytes, data: dict[str, Any], fields: dict[str, Any]) -> bytes:
    """Return `body`, the text of `data`, with fields appended; every byte before them stays.

    A field that the caller has set is overridden: of equal names in an object JSON parsers use the
    last (RFC 8259 4; Python's json and orjson do).
    """
    end = body.rindex(b"}")
    try:
        more = orjson.dumps(fields)[1:-1]
    except TypeError:  # what a caller has nested in one of them
        names = ", ".join(fields)
        raise Refusal("bad_request", f"{names}: nested more than 250 levels deep.", names) from None
    return b"".join((memoryview(body)[:end], b"," if data else b"", more, body[end:]))


def insert_opening(first: bytes, opening: bytes) -> bytes:
    """Return the first bytes of an object with `opening` inserted before its fields."""
    rest = first.lstrip(b" \t\r\n")
    if not rest.startswith(b"{"):
        raise ValueError("not a JSON object")
    return first[: len(first) - len(rest) + 1] + opening + rest[1:]


def _parse_int(value: Any) -> int:
    """Parse a whole number like pydantic; 0 where it would reject."""
    try:
        return int(value) if type(value) in (int, float, str) else 0
    except (ValueError, OverflowError):
        return 0
