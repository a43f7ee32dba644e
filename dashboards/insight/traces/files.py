"""Traces as stored bytes: gzip of JSON lines, lossless, blocks delta-coded. Pure."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import fields
from typing import Any

import orjson

from dashboards.insight.traces.joined import JoinedRequests
from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest

_VERSION = 1
_GZIP = 31  # zlib's wbits
# API keys and blocks of answers stay in recordings: other systems' traces have none.
_OMITTED = ("blocks", "key", "key_group", "answer_blocks")
_NAMES = [field.name for field in fields(TraceRequest) if field.name not in _OMITTED]


def pack(trace: Trace) -> bytes:
    """Return the trace as `unpack` reads it."""
    head = {"version": _VERSION, "block_tokens": trace.block_tokens, "began_at": trace.began_at}
    packer = zlib.compressobj(6, wbits=_GZIP)
    parts = [packer.compress(orjson.dumps(head))]
    # Latest request and its prompt by session, else by first block.
    last: dict[str | int, tuple[int, tuple[int, ...]]] = {}
    for number, request in enumerate(trace.requests):
        blocks = request.blocks
        key = request.session or (blocks[0] if blocks else "")
        before, prompt = last.get(key, (-1, ()))
        shared_count = shared_blocks(prompt, blocks)
        last[key] = number, blocks
        values = [getattr(request, name) for name in _NAMES]
        line = orjson.dumps([before, shared_count, blocks[shared_count:], *values])
        parts.append(packer.compress(b"\n" + line))
    return b"".join((*parts, packer.flush()))


def unpack(data: bytes) -> Trace:
    """Raise TraceError for data that `pack` did not return."""
    try:
        lines = gzip.decompress(data).splitlines()
        head: dict[str, Any] = orjson.loads(lines[0])
        requests = JoinedRequests()
        for line in lines[1:]:
            before, shared_count, rest, *values = orjson.loads(line)
            named = dict(zip(_NAMES, values, strict=True))
            if named["tiers"] is not None:
                named["tiers"] = tuple(named["tiers"])
            requests.append(TraceRequest(blocks=(), **named), before, shared_count, tuple(rest))
        requests.order(range(len(lines) - 1))
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
