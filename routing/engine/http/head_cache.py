"""Heads which were read before: a client sends nearly the same head with every request.

Only the number in Content-Length differs, so a head is remembered with a 0 in its place and read
once. Promises exactly what reading the head itself gives: what is remembered is the strict
parser's result for that same head with another number, a refusal is never remembered, and two
heads which differ anywhere else never meet (a head without a proper number there is looked up as
it came, and a second Content-Length is refused whatever it says). Bounded in entries and in the
size of each; what is kept holds no more than the connections' own buffers do. Must not know
connections.
"""

from __future__ import annotations

import re
from functools import lru_cache

from routing.engine.http import http1
from routing.engine.http.http1 import RequestHead, ResponseHead

# The digits as nearly every client and worker writes them; others are read in full.
_NUMBER = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d{1,15})\r\n")
_MAX_BYTES = 2048  # longer heads are rare, and worth their memory even less
_REQUESTS_KEPT = 1024
_RESPONSES_KEPT = 256  # a worker's differ by its clock's second

_request = lru_cache(_REQUESTS_KEPT)(http1.parse_request)
_response = lru_cache(_RESPONSES_KEPT)(http1.parse_response)


def read_request(head: bytes) -> RequestHead:
    """As http1.parse_request; the result is the caller's own, but for `fields`."""
    if len(head) > _MAX_BYTES:
        return http1.parse_request(head)
    found = _NUMBER.search(head)
    if found is None:
        read = _request(head)
        return read.again(read.length)
    start, end = found.span(1)
    return _request(b"%b0%b" % (head[:start], head[end:])).again(int(found[1]))


def read_response(head: bytes) -> ResponseHead:
    """As http1.parse_response; the result is the caller's own, but for `fields`."""
    if len(head) > _MAX_BYTES:
        return http1.parse_response(head)
    found = _NUMBER.search(head)
    if found is None:
        read = _response(head)
        return read.again(read.length)
    start, end = found.span(1)
    return _response(b"%b0%b" % (head[:start], head[end:])).again(int(found[1]))
