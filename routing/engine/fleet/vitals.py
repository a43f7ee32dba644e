"""Parse cache capacity and process start time from vLLM's /metrics text; None where absent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')
_MAX_TOKENS = 10**12


@dataclass(frozen=True, slots=True)
class Vitals:
    cache_tokens: int | None
    started: float | None


def _parse_number(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) < 16 else 0


def _cache_tokens(labels: dict[bytes, bytes]) -> int:
    tokens = _parse_number(labels.get(b"kv_cache_size_tokens"))
    if not tokens:
        tokens = _parse_number(labels.get(b"num_gpu_blocks")) * _parse_number(
            labels.get(b"block_size")
        )
    return tokens if tokens <= _MAX_TOKENS else 0


def _lines_starting_with(text: bytes, start: bytes) -> Iterator[bytes]:
    """Yield the rest of each line that begins with `start`, without parsing the whole text."""
    at = -1 if text.startswith(start) else text.find(b"\n" + start)
    found = at >= 0 or text.startswith(start)
    while found:
        begin = at + 1 + len(start)
        end = text.find(b"\n", begin)
        yield text[begin:end] if end >= 0 else text[begin:]
        at = text.find(b"\n" + start, begin)
        found = at >= 0


def parse_vitals(text: bytes) -> Vitals:
    """Sum the engines' caches (one line per data-parallel engine)."""
    tokens = sum(
        _cache_tokens(dict(_LABEL.findall(line)))
        for line in _lines_starting_with(text, b"vllm:cache_config_info{")
    )
    try:
        since = next(
            (float(line) for line in _lines_starting_with(text, b"process_start_time_seconds ")),
            None,
        )
    except ValueError:
        since = None
    return Vitals(tokens or None, since)
