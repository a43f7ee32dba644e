"""Requests on the wire for a workload: text in which equal blocks are equal bytes.

Promises four bytes a token, as English has, and that prompts share bytes exactly as far as they
share blocks. The request's number stands at the end of its prompt, so a simulated worker knows
which one it got, whatever a router did to the body. Must not know routers.
"""

from __future__ import annotations

import json
from functools import lru_cache

from bench.fleet.hardware import BLOCK_TOKENS
from bench.fleet.workloads import Ask

TOKEN_BYTES = 4
MODEL = "m"
_BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
_MARK = b"#no:"
_DIGITS = 8


@lru_cache(maxsize=16_384)
def _block(name: int) -> bytes:
    word = b"%07x is what this part says. " % name
    return (word * (_BLOCK_BYTES // len(word) + 1))[:_BLOCK_BYTES]


def wire(number: int, ask: Ask) -> bytes:
    """One chat request, streamed; head and body."""
    size = ask.prompt_tokens * TOKEN_BYTES
    rest = size - len(ask.chain) * _BLOCK_BYTES - len(_MARK) - _DIGITS
    own = (b"%x asks " % number * (max(rest, 0) // 8 + 1))[: max(rest, 0)]
    text = b"".join([*map(_block, ask.chain), own, _MARK, b"%0*d" % (_DIGITS, number)])
    frame = json.dumps(
        {
            "model": MODEL,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": ask.answer_tokens,
            "messages": [{"role": "user", "content": "@"}],
        },
        separators=(",", ":"),
    ).encode()
    body = frame.replace(b"@", text)
    session = b"" if ask.session < 0 else b"X-Session-ID: s%d\r\n" % ask.session
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: fleet\r\nAccept: */*\r\n"
        b"Content-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
        % (session, len(body), body)
    )


def number(body: bytes | bytearray) -> int:
    """Which request this is; -1: none of ours."""
    at = body.rfind(_MARK)
    return int(body[at + len(_MARK) : at + len(_MARK) + _DIGITS]) if at >= 0 else -1


# -- for those who ask a worker for token ids

ID_TOKENS = 32  # one id stands for so many tokens of the simulation: all shares stay as they are


def block_ids(name: int) -> list[int]:
    """Ids of one block, which no other block has."""
    first = name % 100_000
    return [first, name // 100_000, *range(first, first + BLOCK_TOKENS // ID_TOKENS - 2)]


def ids(number_: int, ask: Ask) -> list[int]:
    out: list[int] = []
    for name in ask.chain:
        out += block_ids(name)
    rest = max(1, (ask.prompt_tokens % BLOCK_TOKENS) // ID_TOKENS)
    return out + [200_000 + (number_ * 31 + index) % 50_000 for index in range(rest)]
