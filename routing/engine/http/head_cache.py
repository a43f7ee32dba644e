"""Cache of parsed HTTP heads, keyed by the head with Content-Length replaced by 0.

Results equal those of the strict parser; errors are never cached. Entries and sizes are bounded.
"""

from __future__ import annotations

import re
from functools import lru_cache

from routing.engine.http import http1
from routing.engine.http.http1 import RequestHead, ResponseHead

# The usual form of the header; other forms are parsed in full.
_CONTENT_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d{1,15})\r\n")
_MAX_BYTES = 2048  # longer heads are rare
_CACHED_REQUESTS = 1024
_CACHED_RESPONSES = 256  # responses differ by their Date second

_request = lru_cache(_CACHED_REQUESTS)(http1.parse_request)
_response = lru_cache(_CACHED_RESPONSES)(http1.parse_response)


def read_request(head: bytes) -> RequestHead:
    """Parse like http1.parse_request; the result is a copy that shares `fields`."""
    if len(head) > _MAX_BYTES:
        return http1.parse_request(head)
    found = _CONTENT_LENGTH.search(head)
    if found is None:
        read = _request(head)
        return read.again(read.length)
    start, end = found.span(1)
    return _request(b"%b0%b" % (head[:start], head[end:])).again(int(found[1]))


def read_response(head: bytes) -> ResponseHead:
    """Parse like http1.parse_response; the result is a copy that shares `fields`."""
    if len(head) > _MAX_BYTES:
        return http1.parse_response(head)
    found = _CONTENT_LENGTH.search(head)
    if found is None:
        read = _response(head)
        return read.again(read.length)
    start, end = found.span(1)
    return _response(b"%b0%b" % (head[:start], head[end:])).again(int(found[1]))
