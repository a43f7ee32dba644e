"""Paths open to every caller, and paths that require an `admin` key.

vLLM serves control paths (/sleep, /pause, /collective_rpc, /update_weights, /metrics ...) on the
inference port, so only known inference paths are open. Paths are compared percent-decoded;
ambiguous ones (empty or dot segments, fragment, backslash) are never inference.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

_INFERENCE_PATHS = frozenset((
    b"/v1/chat/completions", b"/v1/completions", b"/v1/responses", b"/v1/messages",
    b"/v1/embeddings", b"/v1/models", b"/tokenize", b"/detokenize", b"/pooling", b"/classify",
    b"/score", b"/rerank", b"/generative_scoring", b"/invocations", b"/version",
))  # fmt: skip
# Prefixes of the inference API; control words below them are still excluded.
_INFERENCE_PREFIXES = (b"/v1/", b"/v2/", b"/cohere/", b"/inference/")
_CONTROL_WORDS = frozenset((
    b"abort_requests", b"admin", b"collective_rpc", b"fault_tolerance", b"finish_weight_update",
    b"init_weight_transfer_engine", b"load_lora_adapter", b"metrics", b"pause",
    b"release_kv_cache_memory", b"reset_encoder_cache", b"reset_mm_cache", b"reset_prefix_cache",
    b"resume", b"scale_elastic_ep", b"server_info", b"sleep", b"start_profile",
    b"start_weight_update", b"stop_profile", b"unload_lora_adapter", b"update_weights", b"wake_up",
))  # fmt: skip
_AMBIGUOUS_PATH = re.compile(rb"//|/\.{1,2}(?:/|$)|[#\\\x00-\x20\x7f]")
_CACHED_PATHS = 1024


def is_common_path(path: bytes) -> bool:
    """Return True for the few paths that name their spans."""
    return path in _INFERENCE_PATHS


class PathRules:
    """`open_paths`: exact paths, or prefixes ending in `*` (except control words)."""

    def __init__(self, open_paths: tuple[str, ...] = ()) -> None:
        self._all = "*" in open_paths
        self._exact = {path.encode() for path in open_paths if not path.endswith("*")}
        self._below = tuple(
            path[:-1].encode() for path in open_paths if path.endswith("*") and path != "*"
        )
        self._known: dict[bytes, bool] = {}

    def needs_admin(self, path: bytes) -> bool:
        if path in _INFERENCE_PATHS:
            return False
        known = self._known.get(path)
        if known is None:
            if len(self._known) >= _CACHED_PATHS:  # bounded: callers choose the paths
                self._known.clear()
            known = self._known[path] = not self._opened(path)
        return known

    def _opened(self, path: bytes) -> bool:
        if self._all:
            return True
        path = unquote_to_bytes(path)
        if _AMBIGUOUS_PATH.search(path):
            return False
        if path in _INFERENCE_PATHS or path in self._exact:
            return True
        if not path.startswith(_INFERENCE_PREFIXES + self._below):
            return False
        return _CONTROL_WORDS.isdisjoint(path.split(b"/"))
