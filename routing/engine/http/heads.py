"""Outgoing HTTP heads: requests to workers, responses to clients, and the router's own answers."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from routing.engine.errors import ANTHROPIC_PATHS, Refusal
from routing.engine.http.http1 import RequestHead, ResponseHead

_STATUS_TEXT: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
# OpenAI's clients wait no longer; Anthropic's would sleep until the end of a budget's month.
_LONGEST_RETRY_S: Final = 120
_STATUS_TEXT[413] = b"Content Too Large"  # RFC 9110, as in Python 3.13


def worker_request_head(
    head: RequestHead, host_line: bytes, body: bytes | None, with_authorization: bool
) -> bytes:
    """Return the request head for a worker; `body` None: the body is streamed."""
    out = [head.method, b" ", head.target, b" HTTP/1.1\r\n", host_line, head.fields]
    if with_authorization and head.authorization:
        out += (b"authorization: ", head.authorization, b"\r\n")
    out += (b"x-request-id: ", head.engine_id)
    if body is None and head.chunked:
        out.append(b"\r\ntransfer-encoding: chunked")
    elif body is None:
        out.append(b"\r\ncontent-length: %d" % head.length)
    elif body or head.length >= 0 or head.chunked:
        out.append(b"\r\ncontent-length: %d" % len(body))
    out.append(b"\r\n\r\n")
    return b"".join(out)


def client_response_head(
    head: ResponseHead, framing: bytes, more: bytes, decision: str, request: RequestHead,
    keep_alive: bool,
) -> bytes:  # fmt: skip
    """Return the response head for the client; `framing` is its length or coding line, or empty,
    `more`: the router's own header lines.
    """
    return b"".join(
        (
            head.status_line,
            b"\r\n",
            head.fields,
            framing,
            more,
            b"x-emberline-decision: ",
            decision.encode(),
            b"\r\nx-request-id: ",
            request.request_id,
            _anthropic_id(request),
            b"\r\n\r\n" if keep_alive else b"\r\nconnection: close\r\n\r\n",
        )
    )


def _anthropic_id(request: RequestHead) -> bytes:
    """Return the line, with the end of the one before, from which Anthropic's clients read IDs."""
    if request.path not in ANTHROPIC_PATHS:
        return b""
    return b"\r\nrequest-id: " + request.request_id


def redirect_within(fields: bytes, address: str) -> bytes | None:
    """Return the fields of a worker's redirect with its own address removed from `Location`; None
    if it leads elsewhere.
    """
    lines = fields.split(b"\r\n")
    for index, line in enumerate(lines):
        name, _, value = line.partition(b":")
        if name.lower() != b"location":
            continue
        place = value.strip(b" \t")
        own = re.match(rb"(?i:https?:)?//([^/?#]*)", place)
        if own is not None:
            if own[1].lower() != address.lower().encode():
                return None
            lines[index] = b"location: " + (place[own.end() :] or b"/")
    return b"\r\n".join(lines)


def with_framing(head: bytes, line: bytes) -> bytes:
    """Return a complete response head with another line after its status line."""
    index = head.index(b"\r\n") + 2
    return head[:index] + line + head[index:]


def refusal_headers(refusal: Refusal, decision: str) -> bytes:
    more = refusal.lines
    if refusal.retry_after_s:
        more += b"retry-after: %d\r\n" % refusal.retry_after_s
    elif refusal.kind.status == 503:
        more += b"retry-after: 1\r\n"
    if refusal.final or refusal.retry_after_s > _LONGEST_RETRY_S:
        more += b"x-should-retry: false\r\n"
    if refusal.kind.status == 401:
        more += b"www-authenticate: Bearer\r\n"
    if decision:
        more += b"x-emberline-decision: %b\r\n" % decision.encode()
    return more


def router_answer(
    status: int, body: bytes, request: RequestHead | None, more: bytes, keep_alive: bool
) -> bytes:
    """Return a complete answer of the router; `more`: additional header lines."""
    only_head = request is not None and request.method == b"HEAD"
    number = b""
    if request is not None and request.request_id:
        number = b"x-request-id: %b%b\r\n" % (request.request_id, _anthropic_id(request))
    return b"".join(
        (
            b"HTTP/1.1 %d %b\r\n" % (status, _STATUS_TEXT.get(status, b"Error")),
            b"content-length: %d\r\n" % len(body),
            b"content-type: application/json\r\n" if body and b"content-type:" not in more else b"",
            more,
            number,
            b"\r\n" if keep_alive else b"connection: close\r\n\r\n",
            b"" if only_head else body,
        )
    )
