"""What a worker's own /metrics say about it: how much its cache holds, and since when it runs.

Promises to find those two numbers in vLLM's text and to give None for what is not there. Must not
know where the text comes from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONFIG = re.compile(rb"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')
_STARTED = re.compile(rb"^process_start_time_seconds (\S+)", re.MULTILINE)
_MOST_TOKENS = 10**12


@dataclass(frozen=True, slots=True)
class Vitals:
    cache_tokens: int | None
    started: float | None


def _whole(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) < 16 else 0


def _tokens(labels: dict[bytes, bytes]) -> int:
    tokens = _whole(labels.get(b"kv_cache_size_tokens"))
    if not tokens:
        tokens = _whole(labels.get(b"num_gpu_blocks")) * _whole(labels.get(b"block_size"))
    return tokens if tokens <= _MOST_TOKENS else 0


def read(text: bytes) -> Vitals:
    """With data parallelism each engine has a line and a cache of its own: they add up."""
    tokens = sum(_tokens(dict(_LABEL.findall(line))) for line in _CONFIG.findall(text))
    started = _STARTED.search(text)
    try:
        since = float(started[1]) if started is not None else None
    except ValueError:
        since = None
    return Vitals(tokens or None, since)
