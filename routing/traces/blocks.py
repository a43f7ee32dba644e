"""Change of a trace's block size. Pure."""

from __future__ import annotations

from dataclasses import replace

from routing.traces.trace import Trace, TraceError, TraceRequest


def resize_blocks(trace: Trace, block_tokens: int) -> Trace:
    """Return the trace with larger or smaller blocks and new ids.

    An id stands for the prompt from its start: a larger block has the identity of its last smaller
    one, and the parts of a larger block are equal where it is. Raise TraceError if neither size is
    a multiple of the other.
    """
    before = trace.block_tokens
    if before == block_tokens:
        return trace
    if block_tokens % before and before % block_tokens:
        raise TraceError(
            f"Blocks of {before} tokens cannot be made from or into blocks of {block_tokens}: "
            "choose a multiple."
        )
    if block_tokens > before:
        return _joined(trace, block_tokens, block_tokens // before)
    return _divided(trace, block_tokens, before // block_tokens)


def _joined(trace: Trace, block_tokens: int, count: int) -> Trace:
    ids: dict[int, int] = {}
    requests: list[TraceRequest] = []
    for request in trace.requests:
        blocks = request.blocks
        lasts = blocks[count - 1 :: count]
        if len(blocks) % count:
            lasts = (*lasts, blocks[-1])
        names = tuple(ids.setdefault(block, len(ids)) for block in lasts)
        requests.append(replace(request, blocks=names))
    return Trace(block_tokens, requests, trace.began_at)


def _divided(trace: Trace, block_tokens: int, count: int) -> Trace:
    requests = []
    for request in trace.requests:
        most = -(-request.prompt_tokens // block_tokens)
        parts = (block * count + part for block in request.blocks for part in range(count))
        blocks = tuple(part for _, part in zip(range(most), parts, strict=False))
        requests.append(replace(request, blocks=blocks))
    return Trace(block_tokens, requests, trace.began_at)
