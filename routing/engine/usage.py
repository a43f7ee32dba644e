"""What a response's tail says about tokens: cheap, bounded, and silent when unsure.

Promises to look at no more than the last few kilobytes of a body and to report a number only
where the engine itself wrote one. Must not know sockets.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TAIL_BYTES = 8192
TAIL_PIECES = 6  # the last event, [DONE], and what may come split around them

# Inside JSON text a quote is escaped, so `"usage"` can only be a key: never generated words.
_MARK = b'"usage"'
# A usage object holds numbers and objects of numbers, so braces can be told apart without a parser.
_OBJECT = re.compile(rb"\s*+:\s*+(\{(?:[^{}]++|\{[^{}]*+\})*+\})")
_MAX_OBJECT_BYTES = 2048
_PROMPT = re.compile(rb'"(?:prompt_tokens|input_tokens)"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"(?:completion_tokens|output_tokens)"\s*:\s*(\d{1,12})')
_CACHED = re.compile(rb'"(?:cached_tokens|cache_read_input_tokens)"\s*:\s*(\d{1,12})')


class Usage(NamedTuple):
    """Tokens as the engine counted them; None where it did not say."""

    prompt: int | None
    completion: int | None
    cached: int | None


def _number(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found is not None else None


def read(tail: bytes) -> Usage | None:
    """The last usage object in the tail of a body, or None."""
    at = tail.rfind(_MARK)
    while at >= 0:
        found = _OBJECT.match(tail, at + len(_MARK), at + _MAX_OBJECT_BYTES)
        if found is not None:
            text = found[1]
            return Usage(_number(_PROMPT, text), _number(_COMPLETION, text), _number(_CACHED, text))
        at = tail.rfind(_MARK, 0, at)
    return None
