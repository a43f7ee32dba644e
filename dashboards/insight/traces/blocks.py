"""Change of a trace's block size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import overload

from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest

_MOST_PROMPT_BLOCKS = 200_000


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
    longest = max((request.prompt_tokens for request in trace.requests), default=0)
    if longest > _MOST_PROMPT_BLOCKS * block_tokens:
        raise TraceError(
            f"A prompt of {longest} tokens has more than {_MOST_PROMPT_BLOCKS} blocks of "
            f"{block_tokens} tokens: choose larger ones."
        )
    if block_tokens > before:
        change = _joined(block_tokens // before)
    else:
        change = _divided(block_tokens, before // block_tokens)
    return Trace(block_tokens, _Changed(trace.requests, change), trace.began_at)


class _Changed(Sequence[TraceRequest]):
    """Requests that are changed on access: all of them together may take much memory."""

    def __init__(
        self, requests: Sequence[TraceRequest], change: Callable[[TraceRequest], TraceRequest]
    ) -> None:
        self._requests = requests
        self._change = change

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, at: int) -> TraceRequest: ...

    @overload
    def __getitem__(self, at: slice) -> list[TraceRequest]: ...

    def __getitem__(self, at: int | slice) -> TraceRequest | list[TraceRequest]:
        if isinstance(at, slice):
            return [self._change(request) for request in self._requests[at]]
        return self._change(self._requests[at])

    def __iter__(self) -> Iterator[TraceRequest]:
        return map(self._change, self._requests)


def _joined(count: int) -> Callable[[TraceRequest], TraceRequest]:
    ids: dict[int, int] = {}

    def change(request: TraceRequest) -> TraceRequest:
        blocks = request.blocks
        lasts = blocks[count - 1 :: count]
        if len(blocks) % count:
            lasts = (*lasts, blocks[-1])
        names = tuple(ids.setdefault(block, len(ids)) for block in lasts)
        return replace(request, blocks=names, answer_blocks=())

    return change


def _divided(block_tokens: int, count: int) -> Callable[[TraceRequest], TraceRequest]:
    def change(request: TraceRequest) -> TraceRequest:
        most = -(-request.prompt_tokens // block_tokens)
        parts = (block * count + part for block in request.blocks for part in range(count))
        return replace(request, blocks=tuple(islice(parts, most)), answer_blocks=())

    return change
