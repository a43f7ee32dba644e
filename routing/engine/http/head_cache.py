"""Cache of parsed HTTP heads, keyed by the head with Content-Length replaced by 0.

Results equal those of the strict parser; errors are never cached. Entries and sizes are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from routing.engine.http import http1
from routing.engine.http.http1 import RequestHead, ResponseHead

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Head = TypeVar("Head", RequestHead, ResponseHead)

# The usual form of the header; other forms are parsed in full.
_CONTENT_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d{1,15})\r\n")
_MAX_BYTES = 2048  # longer heads are rare
_CACHED_REQUESTS = 1024
_CACHED_RESPONSES = 256  # responses differ by their Date second

_request = lru_cache(_CACHED_REQUESTS)(http1.parse_request)
_response = lru_cache(_CACHED_RESPONSES)(http1.parse_response)


def _reader(cached: _lru_cache_wrapper[Head]) -> Callable[[bytes], Head]:
    """Return a parser whose results are copies that share `fields`."""
    parse = cached.__wrapped__

    def read(head: bytes) -> Head:
        if len(head) > _MAX_BYTES:
            return parse(head)
        found = _CONTENT_LENGTH.search(head)
        if found is None:
            known = cached(head)
            return known.again(known.length)
        start, end = found.span(1)
        return cached(b"%b0%b" % (head[:start], head[end:])).again(int(found[1]))

    return read


read_request = _reader(_request)
read_response = _reader(_response)
