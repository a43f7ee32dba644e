"""A trace of requests, and Mooncake's format of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

MOONCAKE_BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request. `arrived_s`: since the trace began. `blocks`: ids of its blocks of
    `Trace.block_tokens`; equal ids mean equal prompts from the start up to there; the last block
    may be partial. `session`, `worker`: keyed hash and name, "" if unknown. `ttft_s`,
    `cached_tokens`, `duration_s`: as measured, None if unknown. `tiers`: tokens that the router
    expected on the worker's device, in L1 and in L2. `status`: HTTP. `cause`: of most misses.
    `key`, `key_group`: keyed hashes of the API key and of its group, "" if none or unknown.
    `strategy`: that placed it, "" if unknown. `answer_blocks`: ids of the blocks that its answer
    filled, after `blocks`, where a later prompt may go on; () if unknown.
    """

    arrived_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    session: str = ""
    worker: str = ""
    ttft_s: float | None = None
    cached_tokens: int | None = None
    duration_s: float | None = None
    tiers: tuple[int, int, int] | None = None
    status: int = 200
    cause: str = ""
    key: str = ""
    key_group: str = ""
    strategy: str = ""
    answer_blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival. `began_at`: Unix time, 0 if unknown. `isolation`: the strictest
    cache isolation under which prompts were hashed, "" if not recorded of all.
    """

    block_tokens: int
    requests: Sequence[TraceRequest]
    began_at: float = 0.0
    isolation: str = ""


class TraceError(ValueError):
    """A file that is not a trace; the message names line, field and remedy."""


def read_mooncake(lines: Iterable[str | bytes]) -> Trace:
    """Read JSON lines of Mooncake's published traces (github.com/kvcache-ai/Mooncake,
    FAST25-release): `timestamp` in ms, `input_length`, `output_length`, `hash_ids` of 512-token
    blocks. Raise TraceError.
    """
    requests = []
    for number, row in parse_rows(lines):
        arrived_ms = read_number(row, "timestamp", number, MOST_MS)
        prompt, output = (int(read_number(row, name, number)) for name in _LENGTHS)
        blocks = read_blocks(row, number, prompt, MOONCAKE_BLOCK_TOKENS)
        requests.append(TraceRequest(arrived_ms / 1000, prompt, output, blocks))
    requests.sort(key=lambda request: request.arrived_s)
    return Trace(MOONCAKE_BLOCK_TOKENS, requests)


def write_mooncake(trace: Trace) -> Iterator[bytes]:
    """Yield JSON lines. Raise TraceError if the trace has other blocks than Mooncake's."""
    if trace.block_tokens != MOONCAKE_BLOCK_TOKENS:
        raise TraceError(
            f"The trace has blocks of {trace.block_tokens} tokens; the format has blocks of "
            f"{MOONCAKE_BLOCK_TOKENS}."
        )
    for request in trace.requests:
        row = {
            "timestamp": round(request.arrived_s * 1000),
            "input_length": request.prompt_tokens,
            "output_length": request.output_tokens,
            "hash_ids": request.blocks,
        }
        yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


# -- lines of any format

MOST_MS = 1e12  # 30 years
MOST_TOKENS = 10_000_000
_LENGTHS = ("input_length", "output_length")


def parse_rows(lines: Iterable[str | bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line that is not empty. Raise TraceError."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise TraceError(f"Line {number} is not JSON: {error}.") from None
        if not isinstance(row, dict):
            raise TraceError(f"Line {number} is no JSON object.")
        yield number, row


def read_number(
    row: dict[str, Any], name: str, line: int, most: float = MOST_TOKENS, place: str = ""
) -> float:
    """Return a field from 0 to `most`. Raise TraceError."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        excerpt = repr(value)[:60] if name in row else "missing"
        raise TraceError(
            f"Line {line}: {place}{name} is {excerpt}; a number of at least 0 and at most "
            f"{most:.0f} is needed."
        )
    return value


def read_blocks(
    row: dict[str, Any], line: int, prompt_tokens: int, block_tokens: int
) -> tuple[int, ...]:
    """Return `hash_ids`, as many as the prompt has blocks at most. Raise TraceError."""
    blocks = row.get("hash_ids")
    if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
        raise TraceError(f"Line {line}: hash_ids is no list of integers.")
    most = -(-prompt_tokens // block_tokens)
    if len(blocks) > most:
        raise TraceError(
            f"Line {line}: hash_ids has {len(blocks)} blocks of {block_tokens} tokens, but the "
            f"prompt of {prompt_tokens} tokens has {most} at most. Correct the block size or the "
            "line."
        )
    return tuple(blocks)
