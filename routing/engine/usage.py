"""What a response's tail says about tokens: cheap, bounded, and silent when unsure.

Promises to look at no more than the last few kilobytes of a body and to report a number only
where the engine itself wrote one. Must not know sockets.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

TAIL_BYTES = 8192
TAIL_PIECES = 6  # the last event, [DONE], and what may come split around them

# Inside JSON text a quote is escaped, so `"usage"` can only be a key: never generated words.
_MARK = b'"usage"'
# A usage object holds numbers and objects of numbers, so braces can be told apart without a parser.
_OBJECT = re.compile(rb"\s*+:\s*+(\{(?:[^{}]++|\{[^{}]*+\})*+\})")
_MAX_OBJECT_BYTES = 2048
_MAX_TOKENS = 10**12


class Usage(NamedTuple):
    """Tokens as the engine counted them; None where it did not say."""

    prompt: int | None
    completion: int | None
    cached: int | None


def _count(usage: dict[str, Any], *names: str) -> int | None:
    """Under the first of these names which is there, if that is a number of tokens."""
    for name in names:
        value = usage.get(name)
        if value is not None:
            return value if type(value) is int and 0 <= value < _MAX_TOKENS else None
    return None


def _numbers(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return Usage(
        _count(usage, "prompt_tokens", "input_tokens"),
        _count(usage, "completion_tokens", "output_tokens"),
        _count(details, "cached_tokens")
        if type(details) is dict
        else _count(usage, "cached_tokens", "cache_read_input_tokens"),
    )


def read(tail: bytes) -> Usage | None:
    """The last usage object in the tail of a body, or None."""
    at = tail.rfind(_MARK)
    while at >= 0:
        found = _OBJECT.match(tail, at + len(_MARK), at + _MAX_OBJECT_BYTES)
        if found is not None:
            try:
                return _numbers(orjson.loads(found[1]))
            except orjson.JSONDecodeError:
                pass  # an earlier one may be whole
        at = tail.rfind(_MARK, 0, at)
    return None
