"""Traces in Mooncake's format: one JSON object per line with time and prompt blocks.

    {"timestamp": 3000, "input_length": 1200, "output_length": 40, "hash_ids": [0, 1, 2]}

`timestamp` in milliseconds, lengths in tokens. Prompts with a common prefix of `hash_ids` share
that text; a block has 512 tokens. Invalid traces are refused by line, as are traces with more rows
than a benchmark may send.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

from console.core.errors import Problem, Refused
from dashboards.benchmarks.generator.job import MAX_REQUESTS, TraceRow

BLOCK_TOKENS = 512
MAX_BYTES = 32 * 1024**2
_MAX_LENGTH = 10_000_000
_SAMPLE_ROWS = 300


def parse(text: str) -> tuple[TraceRow, ...]:
    """Return rows sorted by time, the first at 0. Raise `Refused` with the first invalid line."""
    rows: list[TraceRow] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if len(rows) >= MAX_REQUESTS:
            raise _refused(
                number, f"The trace has more than {MAX_REQUESTS} requests.", "Shorten the file."
            )
        rows.append(_row(number, line))
    if not rows:
        raise _refused(1, "The trace has no requests.", "Use one JSON object per line.")
    rows.sort(key=lambda row: row.at)
    first = rows[0].at
    return tuple(TraceRow(r.at - first, r.prompt_tokens, r.answer_tokens, r.blocks) for r in rows)


def as_lines(rows: Iterable[TraceRow]) -> str:
    return "".join(
        json.dumps(
            {
                "timestamp": round(row.at * 1000),
                "input_length": row.prompt_tokens,
                "output_length": row.answer_tokens,
                "hash_ids": list(row.blocks),
            },
            separators=(",", ":"),
        )
        + "\n"
        for row in rows
    )


def sample() -> tuple[TraceRow, ...]:
    """Return a built-in trace: multi-turn conversations with one shared system prompt, two
    requests/s for about two and a half minutes.
    """
    chance = random.Random(20)
    rows: list[TraceRow] = []
    name, start = 1, 0.0
    while len(rows) < _SAMPLE_ROWS:
        position, tokens, blocks = start, BLOCK_TOKENS, [0]
        for _turn in range(chance.randint(1, 4)):
            tokens += round(min(3000.0, chance.lognormvariate(5.6, 0.9)))
            while len(blocks) < tokens // BLOCK_TOKENS:
                blocks.append(name * 1000 + len(blocks))
            answer = chance.randint(20, 200)
            rows.append(TraceRow(position, tokens, answer, tuple(blocks)))
            tokens += answer
            position += 4 + chance.expovariate(1 / 8)
        name, start = name + 1, start + chance.expovariate(0.8)
    rows.sort(key=lambda row: row.at)
    return tuple(row for row in rows if row.at <= start)


def _row(number: int, line: str) -> TraceRow:
    try:
        document = json.loads(line)
    except ValueError:
        raise _refused(number, "The line is not JSON.", "Use one JSON object per line.") from None
    if not isinstance(document, dict):
        raise _refused(number, "The line is not a JSON object.", "Use one JSON object per line.")
    offset_ms = _number(number, document, "timestamp", 1e15)
    prompt = int(_number(number, document, "input_length", _MAX_LENGTH))
    answer = int(_number(number, document, "output_length", _MAX_LENGTH))
    blocks = document.get("hash_ids", [])
    if not isinstance(blocks, list) or not all(_plain_int(name) for name in blocks):
        raise _refused(number, "hash_ids is not a list of integers.", "Use a list such as [0, 17].")
    if len(blocks) > _MAX_LENGTH // BLOCK_TOKENS:
        raise _refused(number, "hash_ids is too long.", "Remove the line.")
    return TraceRow(offset_ms / 1000, max(1, prompt), max(1, answer), tuple(blocks))


def _number(number: int, facts: dict[str, Any], name: str, high: float) -> float:
    value = facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
        fault = "is missing" if name not in facts else f"is {value!r}"[:60]
        raise _refused(number, f"{name} {fault}.", f"Use a number from 0 to {high:g}.")
    return float(value)


def _plain_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refused(number: int, text: str, remedy: str) -> Refused:
    return Refused(Problem("trace", f"line {number}", f"Line {number}: {text}", remedy, "invalid"))
