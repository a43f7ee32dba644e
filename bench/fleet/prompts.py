"""HTTP requests for a workload: equal blocks become equal bytes.

Four bytes a token, as in English. Prompts share bytes exactly as far as they share blocks. The
request number ends the prompt, so that a simulated worker can identify it.
"""

from __future__ import annotations

import json
from functools import lru_cache

from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import BLOCK_TOKENS

TOKEN_BYTES = 4
MODEL = "m"
_BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
_MARK = b"#no:"
_DIGITS = 8


@lru_cache(maxsize=16_384)
def _block(name: int) -> bytes:
    word = b"%07x is what this part says. " % name
    return (word * (_BLOCK_BYTES // len(word) + 1))[:_BLOCK_BYTES]


def wire(number: int, ask: PlannedRequest) -> bytes:
    """Return head and body of one streaming chat request."""
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
        b"Content-Type: application/json\r\nX-Request-ID: %d\r\n%bContent-Length: %d\r\n\r\n%b"
        % (number, session, len(body), body)
    )


def number(body: bytes | bytearray) -> int:
    """Return the request number, -1 if there is none."""
    at = body.rfind(_MARK)
    return int(body[at + len(_MARK) : at + len(_MARK) + _DIGITS]) if at >= 0 else -1


# -- token ids


class Ids:
    """Prompts as token ids, each of which stands for `tokens` tokens of the simulation.

    Fewer, larger tokens suffice for routers that compare shares of prompts, and are cheaper. A
    router whose cost counts tokens needs all of them.
    """

    def __init__(self, tokens: int) -> None:
        self.a_block = BLOCK_TOKENS // tokens
        self._tokens = tokens
        self._json = lru_cache(maxsize=16_384)(self._block_json)

    def block(self, name: int) -> list[int]:
        """Return the ids of one block, distinct from those of any other."""
        first = name % 100_000
        return [first, name // 100_000, *range(first, first + self.a_block - 2)]

    def _block_json(self, name: int) -> bytes:
        return json.dumps(self.block(name), separators=(",", ":"))[1:-1].encode()

    def json(self, number_: int, ask: PlannedRequest) -> bytes:
        """Return the prompt of a request as a list; ids after its whole blocks are unique."""
        rest = max(1, (ask.prompt_tokens - len(ask.chain) * BLOCK_TOKENS) // self._tokens)
        own = [200_000 + (number_ * 31 + index) % 50_000 for index in range(rest)]
        parts = [*map(self._json, ask.chain), json.dumps(own)[1:-1].encode()]
        return b"[%b]" % b",".join(parts)
