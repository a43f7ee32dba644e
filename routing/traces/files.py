"""Traces as stored bytes: gzip of JSON lines, lossless, blocks delta-coded. Pure."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import fields
from typing import Any

import orjson

from routing.traces.trace import Trace, TraceError, TraceRequest

_VERSION = 1
# API keys stay in recordings: other systems' traces have none.
_OMITTED = ("blocks", "key", "key_group")
_NAMES = [field.name for field in fields(TraceRequest) if field.name not in _OMITTED]


def pack(trace: Trace) -> bytes:
    """Return the trace as `unpack` reads it."""
    head = {"version": _VERSION, "block_tokens": trace.block_tokens, "began_at": trace.began_at}
    lines = [orjson.dumps(head)]
    last: dict[str | int, int] = {}  # latest request by session, else by first block
    prompts: list[tuple[int, ...]] = []
    for number, request in enumerate(trace.requests):
        blocks = request.blocks
        key = request.session or (blocks[0] if blocks else "")
        before = last.get(key, -1)
        kept = shared_blocks(prompts[before], blocks) if before >= 0 else 0
        last[key] = number
        prompts.append(blocks)
        values = [getattr(request, name) for name in _NAMES]
        lines.append(orjson.dumps([before, kept, blocks[kept:], *values]))
    return gzip.compress(b"\n".join(lines), 6, mtime=0)


def unpack(data: bytes) -> Trace:
    """Raise TraceError for data that `pack` did not return."""
    try:
        lines = gzip.decompress(data).splitlines()
        head: dict[str, Any] = orjson.loads(lines[0])
        requests: list[TraceRequest] = []
        for line in lines[1:]:
            before, kept, rest, *values = orjson.loads(line)
            blocks = (*(requests[before].blocks[:kept] if kept else ()), *rest)
            named = dict(zip(_NAMES, values, strict=True))
            if named["tiers"] is not None:
                named["tiers"] = tuple(named["tiers"])
            requests.append(TraceRequest(blocks=blocks, **named))
        return Trace(int(head["block_tokens"]), requests, float(head["began_at"]))
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, IndexError) as error:
        raise TraceError("The stored trace is damaged. Import it again.") from error


def shared_blocks(before: tuple[int, ...], blocks: tuple[int, ...]) -> int:
    """Return the number of equal first blocks."""
    low, high = 0, min(len(before), len(blocks))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == blocks[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
