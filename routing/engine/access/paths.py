"""Paths of the inference API, control paths that require an `admin` key, and unknown paths.

vLLM serves control paths (/sleep, /pause, /collective_rpc, /update_weights, /metrics ...) on the
inference port, so only known inference paths are open. Paths are compared percent-decoded;
ambiguous ones (empty or dot segments, fragment, backslash) are never inference.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final
from urllib.parse import unquote_to_bytes

from routing.engine.errors import Refusal

OPEN, CONTROL, UNKNOWN = range(3)

# vLLM 0.32 and, from /v1/audio/speech on, vLLM-Omni.
_INFERENCE_PATHS: Final = frozenset((
    b"/v1/chat/completions", b"/v1/completions", b"/v1/responses", b"/v1/messages",
    b"/v1/embeddings", b"/v1/models", b"/tokenize", b"/detokenize", b"/pooling", b"/classify",
    b"/score", b"/rerank", b"/generative_scoring", b"/invocations", b"/version",
    b"/v1/chat/completions/batch", b"/v1/chat/completions/render",
    b"/v1/chat/completions/derender", b"/v1/completions/render", b"/v1/completions/derender",
    b"/v1/responses/render", b"/v1/messages/render", b"/v1/messages/count_tokens",
    b"/v1/score", b"/v1/rerank", b"/v2/rerank", b"/v2/embed", b"/v1/systemone",
    b"/cohere/v2/chat", b"/cohere/v2/chat/render", b"/inference/v1/generate",
    b"/v1/audio/transcriptions", b"/v1/audio/translations", b"/v1/audio/speech",
    b"/v1/images/generations", b"/v1/images/edits", b"/v1/videos",
))  # fmt: skip
_INFERENCE_PATTERN: Final = re.compile(rb"/v1/(?:responses/[^/]+(?:/cancel)?|models/.+|videos/.+)")
_RESPONSE_PATTERN: Final = re.compile(rb"/v1/responses/([^/]+)(?:/cancel)?")
_CONTROL_WORDS: Final = frozenset((
    b"abort_requests", b"admin", b"collective_rpc", b"docs", b"fault_tolerance",
    b"finish_weight_update", b"get_world_size", b"init_weight_transfer_engine", b"is_paused",
    b"is_scaling_elastic_ep", b"is_sleeping", b"kv_event_sources", b"load", b"load_lora_adapter",
    b"metrics", b"openapi.json", b"pause", b"ready", b"readyz", b"redoc",
    b"release_kv_cache_memory", b"reset_encoder_cache", b"reset_mm_cache", b"reset_prefix_cache",
    b"resume", b"scale_elastic_ep", b"server_info", b"shutdown_weight_transfer_engine", b"sleep",
    b"start_draft_weight_update", b"start_profile", b"start_weight_update", b"static",
    b"stop_profile", b"tokenizer_info", b"unload_lora_adapter", b"update_weight_version",
    b"update_weights", b"wake_up", b"weight_checker", b"weight_info",
))  # fmt: skip
# Paths without effects that an operator may want to open.
_OPENABLE: Final = frozenset(
    (b"/metrics", b"/docs", b"/redoc", b"/openapi.json", b"/load", b"/readyz")
)
# First words of other servers' APIs: Ollama, Text Generation Inference, Azure.
_ALIASES: Final = {
    b"/api/chat": b"/v1/chat/completions",
    b"/api/generate": b"/v1/completions",
    b"/api/embed": b"/v1/embeddings",
    b"/api/embeddings": b"/v1/embeddings",
    b"/api/tags": b"/v1/models",
    b"/generate": b"/v1/completions",
    b"/generate_stream": b"/v1/completions",
    b"/info": b"/v1/models",
}
_AMBIGUOUS_PATH: Final = re.compile(rb"//|/\.{1,2}(?:/|$)|[#\\\x00-\x20\x7f]")
_MAIN_PATHS: Final = (
    "/v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/embeddings and "
    "/v1/models, among others"
)
_SHOWN_BYTES: Final = 100
_CACHED_PATHS: Final = 1024


def is_common_path(path: bytes) -> bool:
    """Return True for the paths of the API that have no parameters: the few that name spans."""
    return path in _INFERENCE_PATHS


def _is_inference(path: bytes) -> bool:
    if path in _INFERENCE_PATHS:
        return True
    if _INFERENCE_PATTERN.fullmatch(path) is None:
        return False
    return _CONTROL_WORDS.isdisjoint(path.split(b"/"))


def without_slash(path: bytes) -> bytes:
    """Return an inference path without the slash at its end, to which workers would redirect; b""
    for all other paths.
    """
    if len(path) < 2 or not path.endswith(b"/"):
        return b""
    decoded = unquote_to_bytes(path[:-1])
    if _AMBIGUOUS_PATH.search(decoded) or not _is_inference(decoded):
        return b""
    return path[:-1]


def _plain(path: bytes) -> bytes:
    """Return a decoded path without empty and dot segments."""
    words: list[bytes] = []
    for word in re.split(rb"[/\\]", path):
        if word == b"..":
            del words[-1:]
        elif word not in (b"", b"."):
            words.append(word)
    return b"/" + b"/".join(words)


def likely_path(path: bytes) -> str:
    """Return the inference path that a caller of an unknown one probably meant, or ""."""
    written = _plain(unquote_to_bytes(path)[:1024])
    plain = written.lower()
    if plain in _ALIASES:
        return _ALIASES[plain].decode()
    for start in range(plain.count(b"/")):  # a wrong or repeated beginning, a missing /v1
        rest = b"/" + plain.split(b"/", start + 1)[-1]
        for candidate in (rest, b"/v1" + rest):
            if candidate in _INFERENCE_PATHS:
                return candidate.decode()
            named = _RESPONSE_PATTERN.fullmatch(candidate)
            if named is not None:  # IDs keep their case
                start, end = named.span(1)
                more = len(written) - len(candidate)
                name = written[start + more : end + more]
                return (candidate[:start] + name + candidate[end:]).decode("latin-1")
    close = get_close_matches(
        plain.decode("latin-1"), [path.decode() for path in _INFERENCE_PATHS], 1, 0.8
    )
    return close[0] if close else ""


class PathRules:
    """Rules of forwarded paths. `open_paths`: exact paths, or prefixes ending in `*` (except
    control words).
    """

    def __init__(self, open_paths: tuple[str, ...] = ()) -> None:
        self._all = "*" in open_paths
        self._exact = {path.encode() for path in open_paths if not path.endswith("*")}
        self._below = tuple(
            path[:-1].encode() for path in open_paths if path.endswith("*") and path != "*"
        )
        self._known: dict[bytes, int] = {}

    def access(self, path: bytes) -> int:
        """Return OPEN, CONTROL or UNKNOWN; the latter two require an admin key."""
        if path in _INFERENCE_PATHS:
            return OPEN
        access = self._known.get(path)
        if access is None:
            if len(self._known) >= _CACHED_PATHS:  # bounded: callers choose the paths
                self._known.clear()
            access = self._known[path] = self._classify(path)
        return access

    def needs_admin(self, path: bytes) -> bool:
        return self.access(path) != OPEN

    def _classify(self, path: bytes) -> int:
        if self._all:
            return OPEN
        path = unquote_to_bytes(path)
        ambiguous = _AMBIGUOUS_PATH.search(path) is not None
        if not ambiguous and (_is_inference(path) or path in self._exact):
            return OPEN
        if not _CONTROL_WORDS.isdisjoint(_plain(path.lower()).split(b"/")):
            return CONTROL
        return OPEN if not ambiguous and self._below and path.startswith(self._below) else UNKNOWN


def control_refusal(path: bytes) -> Refusal:
    """Return the refusal of a control path to a key without admin rights."""
    text = "This path controls a worker and requires a key with admin rights."
    plain = _plain(unquote_to_bytes(path))
    if plain in _OPENABLE:
        name = plain.decode()
        text += f" To open it to every caller, add {name} to the router's open_paths."
    return Refusal("path_not_allowed", text)


def unknown_refusal(method: bytes, path: bytes) -> Refusal:
    """Return the refusal of an unknown path, with the path that was probably meant."""
    path_text = path[:_SHOWN_BYTES].decode("latin-1")
    text = f"{method.decode('latin-1')} {path_text} is not a path of this API."
    likely = likely_path(path)
    text += f" Did you mean {likely}?" if likely else f" It serves {_MAIN_PATHS}."
    return Refusal("not_found", text)
