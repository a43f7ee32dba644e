"""NVIDIA Dynamo's form of Mooncake traces: sessions whose turns wait for the answer before. Pure.

Source: docs.nvidia.com/dynamo/user-guides/mocker-offline-trace-replay and
github.com/ai-dynamo/dynamo, docs/benchmarks/dynosim-runs.md (`python -m dynamo.replay`): rows with
`session_id` are turns; the first has `timestamp` (ms), a later one `delay` (ms after the answer
before) or a later `timestamp`; rows without `session_id` are independent. The block size is not in
the file: it is dynamo.replay's --trace-block-size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from dashboards.insight.traces.trace import (
    MOST_MS,
    MOST_TOKENS,
    Trace,
    TraceError,
    TraceRequest,
    parse_rows,
    read_blocks,
    read_number,
)

_FIRST_TOKEN_S, _TOKEN_S = 1.0, 0.016
_MOST_NAME = 200


def end_of(request: TraceRequest) -> float:
    """Return when the answer ended; after a nominal time where that is unknown."""
    duration = request.duration_s
    if duration is None:
        duration = _FIRST_TOKEN_S + _TOKEN_S * request.output_tokens
    return request.arrived_s + duration


def write_dynamo(trace: Trace) -> Iterator[bytes]:
    """Yield JSON lines. A request that arrived during the session's previous answer is written as
    an independent one, since turns of a session do not overlap.
    """
    last: dict[str, TraceRequest] = {}
    for request in trace.requests:
        row: dict[str, Any] = {}
        before = last.get(request.session) if request.session else None
        waited = 0.0 if before is None else request.arrived_s - end_of(before)
        if request.session and waited >= 0:
            row["session_id"] = request.session
            last[request.session] = request
        if before is not None and waited >= 0:
            row["delay"] = round(waited * 1000)
        else:
            row["timestamp"] = round(request.arrived_s * 1000)
        row["input_length"] = request.prompt_tokens
        row["output_length"] = request.output_tokens
        row["hash_ids"] = request.blocks
        yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def read_dynamo(lines: Iterable[str | bytes], block_tokens: int) -> Trace:
    """Read JSON lines with ids of blocks of `block_tokens`. Turns with a `delay` arrive after a
    nominal time of the answer before them. Raise TraceError.
    """
    last: dict[str, TraceRequest] = {}
    requests = []
    for line, row in parse_rows(lines):
        session = _session(row, line)
        before = last.get(session) if session else None
        prompt = int(read_number(row, _either(row, "input_length", "input_tokens"), line))
        output = int(
            read_number(row, _either(row, "output_length", "output_tokens"), line, MOST_TOKENS)
        )
        delay = _either(row, "delay", "delay_ms")
        if before is not None and row.get(delay) is not None:
            arrived_s = end_of(before) + read_number(row, delay, line, MOST_MS) / 1000
        else:
            when = _either(row, "timestamp", "created_time")
            arrived_s = read_number(row, when, line, MOST_MS) / 1000
        blocks = read_blocks(row, line, prompt, block_tokens)
        request = TraceRequest(arrived_s, prompt, output, blocks, session)
        last[session] = request
        requests.append(request)
    requests.sort(key=lambda request: request.arrived_s)
    return Trace(block_tokens, requests)


def _either(row: dict[str, Any], name: str, other: str) -> str:
    return other if name not in row and other in row else name


def _session(row: dict[str, Any], line: int) -> str:
    session = row.get("session_id")
    if session is None:
        return ""
    if not isinstance(session, str) or not 0 < len(session) <= _MOST_NAME:
        raise TraceError(
            f"Line {line}: session_id is {repr(session)[:60]}; a text of up to {_MOST_NAME} "
            "characters is needed, or leave it out."
        )
    return session
