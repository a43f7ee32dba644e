"""Cross-origin requests of browsers: preflight answers and the headers on all other answers.

The router answers for all workers, by its `allowed_origins`; the default of every origin is vLLM's.
Keys are sent by the page's script, never by the browser itself, so that an origin alone opens
nothing. https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

from routing.engine.errors import Refusal
from routing.engine.http.http1 import RequestHead

_METHODS = b"GET, POST, DELETE, OPTIONS"
_MAX_AGE_S = 600
_SHOWN_BYTES = 100
_EXPOSED = (
    b"x-request-id, x-emberline-worker, x-emberline-decision, retry-after, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)


def is_preflight(head: RequestHead) -> bool:
    return (
        head.method == b"OPTIONS"
        and bool(head.origin)
        and head.get(b"access-control-request-method") is not None
    )


def _is_allowed(origin: bytes, allowed: tuple[str, ...]) -> bool:
    return "*" in allowed or origin.decode("latin-1").lower() in allowed


def _origin_lines(origin: bytes, allowed: tuple[str, ...]) -> bytes:
    if "*" in allowed:
        return b"access-control-allow-origin: *\r\n"
    return b"access-control-allow-origin: " + origin + b"\r\nvary: Origin\r\n"


def answer_lines(head: RequestHead | None, allowed: tuple[str, ...]) -> bytes:
    """Return the header lines of any other answer; b"" without an allowed origin."""
    if head is None or not head.origin or not _is_allowed(head.origin, allowed):
        return b""
    exposed = b"access-control-expose-headers: " + _EXPOSED + b"\r\n"
    return _origin_lines(head.origin, allowed) + exposed


def preflight_lines(head: RequestHead, allowed: tuple[str, ...]) -> bytes:
    """Return the header lines of a preflight's answer. Raise Refusal for another origin."""
    if not _is_allowed(head.origin, allowed):
        origin_text = head.origin[:_SHOWN_BYTES].decode("latin-1")
        text = f"The origin {origin_text} is not one of this endpoint's allowed_origins."
        raise Refusal("origin_not_allowed", text)
    requested = head.get(b"access-control-request-headers") or b"authorization, content-type"
    return (
        _origin_lines(head.origin, allowed)
        + b"access-control-allow-methods: %b\r\naccess-control-allow-headers: %b\r\n"
        b"access-control-max-age: %d\r\n" % (_METHODS, requested, _MAX_AGE_S)
    )
