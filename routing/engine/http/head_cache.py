"""Cache of parsed HTTP heads, keyed by the head with Content-Length replaced by 0.

Results equal those of the strict parser; errors are never cached. Entries and sizes are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from routing.engine.http import http1

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper


class CachedHead(Protocol):
    length: int

    def again(self, length: int) -> Self: ...


Head = TypeVar("Head", bound=CachedHead)

# The usual spellings of the header; heads with others are kept whole.
_CONTENT_LENGTHS: Final = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")
_NAME_BYTES: Final = len(_CONTENT_LENGTHS[0])
_MAX_DIGITS: Final = 15
_MAX_BYTES: Final = 2048  # longer heads are rare
_CACHED_REQUESTS: Final = 1024
_CACHED_RESPONSES: Final = 256  # responses differ by their Date second

_request = lru_cache(_CACHED_REQUESTS)(http1.parse_request)
_response = lru_cache(_CACHED_RESPONSES)(http1.parse_response)


def _reader(
    cached: _lru_cache_wrapper[Head], spellings: tuple[bytes, bytes]
) -> Callable[[bytes], Head]:
    """Return a parser whose results are copies that share `fields`."""
    parse = cached.__wrapped__
    first, second = spellings

    def read(head: bytes) -> Head:
        if len(head) > _MAX_BYTES:
            return parse(head)
        start = head.find(first) + _NAME_BYTES
        if start < _NAME_BYTES:
            start = head.find(second) + _NAME_BYTES
        if start >= _NAME_BYTES:
            end = head.find(b"\r\n", start)
            digits = head[start:end]
            if digits.isdigit() and len(digits) <= _MAX_DIGITS and end > 0:
                return cached(head[:start] + b"0" + head[end:]).again(int(digits))
        cached_head = cached(head)
        return cached_head.again(cached_head.length)

    return read


read_request = _reader(_request, _CONTENT_LENGTHS)
read_response = _reader(_response, (_CONTENT_LENGTHS[1], _CONTENT_LENGTHS[0]))
