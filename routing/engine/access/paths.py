"""Which paths of a worker any caller may use, and which need a key with `admin`.

A vLLM server answers far more than inference on its one port: /sleep, /pause, /collective_rpc,
/update_weights, /load_lora_adapter, /reset_prefix_cache, /metrics, /server_info ... Whoever may
ask for words must not be able to stop the service for all others, so only inference passes for
every caller and anything else, known or not, needs `admin: true` in the key file. That holds
without keys too: there is no admin then, and what should be reachable is named in `open_paths`.

Promises to decide on the path as a worker will read it: percent-decoded, and what could be read
two ways (empty or dot segments, a fragment, a backslash) is never inference. Must not know keys.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

_INFERENCE = frozenset(
    (
        b"/v1/chat/completions",
        b"/v1/completions",
        b"/v1/responses",
        b"/v1/messages",
        b"/v1/embeddings",
        b"/v1/models",
        b"/tokenize",
        b"/detokenize",
        b"/pooling",
        b"/classify",
        b"/score",
        b"/rerank",
        b"/generative_scoring",
        b"/invocations",
        b"/version",
    )
)
# Everything below these is an API for callers, but for the words which control a worker.
_ROOTS = (b"/v1/", b"/v2/", b"/cohere/", b"/inference/")
_CONTROL = frozenset(
    (
        b"abort_requests",
        b"admin",
        b"collective_rpc",
        b"fault_tolerance",
        b"finish_weight_update",
        b"init_weight_transfer_engine",
        b"load_lora_adapter",
        b"metrics",
        b"pause",
        b"release_kv_cache_memory",
        b"reset_encoder_cache",
        b"reset_mm_cache",
        b"reset_prefix_cache",
        b"resume",
        b"scale_elastic_ep",
        b"server_info",
        b"sleep",
        b"start_profile",
        b"start_weight_update",
        b"stop_profile",
        b"unload_lora_adapter",
        b"update_weights",
        b"wake_up",
    )
)
_TWO_READINGS = re.compile(rb"//|/\.{1,2}(?:/|$)|[#\\\x00-\x20\x7f]")
_REMEMBERED = 1024


def is_common(path: bytes) -> bool:
    """One of the few paths nearly all requests go to: fit for a name."""
    return path in _INFERENCE


class Paths:
    """`open_paths` opens more: exact paths, and all below one which ends in `*`, but for control
    words there. A lone `*` opens everything."""

    def __init__(self, open_paths: tuple[str, ...] = ()) -> None:
        self._all = "*" in open_paths
        self._exact = {path.encode() for path in open_paths if not path.endswith("*")}
        self._below = tuple(
            path[:-1].encode() for path in open_paths if path.endswith("*") and path != "*"
        )
        self._known: dict[bytes, bool] = {}

    def needs_admin(self, path: bytes) -> bool:
        if path in _INFERENCE:
            return False
        known = self._known.get(path)
        if known is None:
            if len(self._known) >= _REMEMBERED:  # callers choose paths: bounded
                self._known.clear()
            known = self._known[path] = not self._opened(path)
        return known

    def _opened(self, path: bytes) -> bool:
        if self._all:
            return True
        path = unquote_to_bytes(path)
        if _TWO_READINGS.search(path):
            return False
        if path in _INFERENCE or path in self._exact:
            return True
        if not path.startswith(_ROOTS + self._below):
            return False
        return _CONTROL.isdisjoint(path.split(b"/"))
