"""Trace formats by name, for files in and out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dashboards.insight.traces.agentic import BLOCK_TOKENS, read_agentic, write_agentic
from dashboards.insight.traces.blocks import resize_blocks
from dashboards.insight.traces.dynamo import read_dynamo, write_dynamo
from dashboards.insight.traces.trace import (
    MOONCAKE_BLOCK_TOKENS,
    Trace,
    TraceError,
    read_mooncake,
    write_mooncake,
)

Lines = Iterable[str | bytes]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """Format of trace files. `block_tokens`: of its ids; `any_blocks`: other sizes are possible,
    too.
    """

    label: str
    block_tokens: int
    read: Callable[[Lines, int], Trace]
    write: Callable[[Trace], Iterator[bytes]]
    any_blocks: bool = False


FORMATS = {
    "mooncake": TraceFormat(
        "Mooncake", MOONCAKE_BLOCK_TOKENS, lambda lines, _: read_mooncake(lines), write_mooncake
    ),
    "dynamo": TraceFormat(
        "NVIDIA Dynamo", MOONCAKE_BLOCK_TOKENS, read_dynamo, write_dynamo, any_blocks=True
    ),
    "agentic": TraceFormat(
        "Agentic sessions", BLOCK_TOKENS, lambda lines, _: read_agentic(lines), write_agentic
    ),
}


def read_trace(format_name: str, lines: Lines, block_tokens: int = 0) -> Trace:
    """Read a file's lines; `block_tokens` 0: the format's own. Raise TraceError."""
    return _find(format_name).read(lines, _block_tokens(format_name, block_tokens))


def write_trace(format_name: str, trace: Trace, block_tokens: int = 0) -> Iterator[bytes]:
    """Return the lines of a file; `block_tokens` 0: the format's own. Raise TraceError before the
    first line.
    """
    size = _block_tokens(format_name, block_tokens)
    return _find(format_name).write(resize_blocks(trace, size))


def _block_tokens(format_name: str, block_tokens: int) -> int:
    trace_format = _find(format_name)
    if not block_tokens or block_tokens == trace_format.block_tokens:
        return trace_format.block_tokens
    if not trace_format.any_blocks:
        size = trace_format.block_tokens
        raise TraceError(
            f"{trace_format.label} has blocks of {size} tokens. Leave the block size out."
        )
    if not 1 <= block_tokens <= 65_536:
        raise TraceError("The block size is a whole number of tokens from 1 to 65536.")
    return block_tokens


def _find(format_name: str) -> TraceFormat:
    trace_format = FORMATS.get(format_name)
    if trace_format is None:
        names = ", ".join(FORMATS)
        raise TraceError(f"Unknown format {format_name[:40]!r}. Choose one of {names}.")
    return trace_format
