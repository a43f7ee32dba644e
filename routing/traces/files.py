"""Traces as stored bytes: gzip of JSON lines, lossless, blocks delta-coded. Pure."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import fields
from typing import Any

import orjson

from routing.traces.trace import Trace, TraceError, TraceRequest

_VERSION = 1
_NAMES = [field.name for field in fields(TraceRequest) if field.name != "blocks"]


def pack(trace: Trace) -> bytes:
    """Return the trace as `unpack` reads it."""
    head = {"version": _VERSION, "block_tokens": trace.block_tokens, "began_at": trace.began_at}
    lines = [orjson.dumps(head)]
    last: dict[int, tuple[int, ...]] = {}  # latest blocks by their first
    for request in trace.requests:
        blocks = request.blocks
        before = last.get(blocks[0], ()) if blocks else ()
        kept = shared_blocks(before, blocks)
        if blocks:
            last[blocks[0]] = blocks
        values = [getattr(request, name) for name in _NAMES]
        lines.append(orjson.dumps([kept, blocks[0] if kept else None, blocks[kept:], *values]))
    return gzip.compress(b"\n".join(lines), 6, mtime=0)


def unpack(data: bytes) -> Trace:
    """Raise TraceError for data that `pack` did not return."""
    try:
        lines = gzip.decompress(data).splitlines()
        head: dict[str, Any] = orjson.loads(lines[0])
        last: dict[int, tuple[int, ...]] = {}
        requests = []
        for line in lines[1:]:
            kept, first, rest, *values = orjson.loads(line)
            blocks = (*(last[first][:kept] if kept else ()), *rest)
            if blocks:
                last[blocks[0]] = blocks
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
