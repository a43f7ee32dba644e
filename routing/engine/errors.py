"""Every refusal the router can give, as one table: status, OpenAI type, counted reason.

Promises that an error body has OpenAI's shape and a stable code, and that the metrics can create
a counter for every reason before the first error happens. Must not know sockets.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One code: its HTTP status, OpenAI's error type, and the reason it is counted under.

    `shown`: the code a caller sees, where several kinds are one to clients.
    """

    status: int
    type: str
    reason: str
    shown: str = ""


KINDS: dict[str, ErrorKind] = {
    "bad_request": ErrorKind(400, "invalid_request_error", "bad_request"),
    "request_timeout": ErrorKind(408, "invalid_request_error", "bad_request"),
    "body_too_large": ErrorKind(413, "invalid_request_error", "bad_request"),
    "too_many_messages": ErrorKind(400, "invalid_request_error", "too_many_messages"),
    "too_many_parts": ErrorKind(400, "invalid_request_error", "too_many_parts"),
    "body_too_complex": ErrorKind(400, "invalid_request_error", "body_too_complex"),
    "headers_too_large": ErrorKind(431, "invalid_request_error", "bad_request"),
    "unsupported": ErrorKind(501, "invalid_request_error", "bad_request"),
    "version_not_supported": ErrorKind(505, "invalid_request_error", "bad_request"),
    "method_not_allowed": ErrorKind(405, "invalid_request_error", "bad_request"),
    "not_found": ErrorKind(404, "invalid_request_error", "bad_request"),
    "expectation_failed": ErrorKind(417, "invalid_request_error", "bad_request"),
    "invalid_api_key": ErrorKind(401, "authentication_error", "unauthorized"),
    "pin_not_allowed": ErrorKind(403, "permission_error", "forbidden"),
    "path_not_allowed": ErrorKind(403, "permission_error", "forbidden"),
    "model_not_found": ErrorKind(404, "invalid_request_error", "forbidden"),
    "model_not_named": ErrorKind(403, "permission_error", "forbidden"),
    "browser_refused": ErrorKind(403, "permission_error", "forbidden"),
    "unknown_worker": ErrorKind(404, "invalid_request_error", "unknown_worker"),
    "rate_limit_requests": ErrorKind(429, "requests", "rate_limit_requests", "rate_limit_exceeded"),
    "rate_limit_tokens": ErrorKind(429, "tokens", "rate_limit_tokens", "rate_limit_exceeded"),
    "key_rate_limit_requests": ErrorKind(
        429, "requests", "key_rate_limit_requests", "rate_limit_exceeded"
    ),
    "key_rate_limit_tokens": ErrorKind(
        429, "tokens", "key_rate_limit_tokens", "rate_limit_exceeded"
    ),
    "insufficient_quota": ErrorKind(429, "insufficient_quota", "key_budget_spent"),
    "budget_reserved": ErrorKind(429, "insufficient_quota", "key_budget_reserved"),
    "cache_isolation": ErrorKind(400, "invalid_request_error", "cache_isolation"),
    "too_many_clients": ErrorKind(503, "server_error", "too_many_clients"),
    "buffer_full": ErrorKind(503, "server_error", "buffer_full"),
    "queue_full": ErrorKind(429, "rate_limit_error", "queue_full"),
    "queue_timeout": ErrorKind(429, "rate_limit_error", "queue_timeout"),
    "no_healthy_worker": ErrorKind(503, "server_error", "no_healthy_worker"),
    "internal_error": ErrorKind(500, "server_error", "internal_error"),
    "engine_died": ErrorKind(502, "server_error", "engine_died"),
    "upstream_connect": ErrorKind(502, "server_error", "upstream_connect"),
    "upstream_reset": ErrorKind(502, "server_error", "upstream_reset"),
    "upstream_timeout": ErrorKind(504, "server_error", "upstream_timeout"),
    "upstream_protocol": ErrorKind(502, "server_error", "upstream_protocol"),
}

# Counted without an answer of our own: the reply was already under way, or nobody is left to
# read it, or a worker's own 5xx is handed on.
SILENT_REASONS = ("client_cancelled", "broken_stream", "upstream_5xx", "stalled_client")
REASONS: tuple[str, ...] = (
    *dict.fromkeys(kind.reason for kind in KINDS.values()),
    *SILENT_REASONS,
)


# vLLM's words for "my engine process is gone": in a 500 to whatever it was computing, or as the
# first event of a stream. Its other 500s are about one request.
_ENGINE_DIED = "EngineCore encountered an issue."


class Refusal(Exception):
    """The request is answered here, with an error.

    `retry_after_s`: when asking again may do; 0: nothing is said about it. `final`: the client must
    not ask again; OpenAI's and Anthropic's libraries obey this.
    """

    final = False

    def __init__(
        self, code: str, message: str, param: str | None = None, retry_after_s: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def kind(self) -> ErrorKind:
        return KINDS[self.code]

    def _shown(self) -> dict[str, str | None]:
        return {
            "message": self.message,
            "type": self.kind.type,
            "code": self.kind.shown or self.code,
            "param": self.param,
        }

    def body(self) -> bytes:
        return orjson.dumps({"error": self._shown()})

    def event(self, named: bool) -> bytes:
        """As the last event of a stream; `named` in Anthropic's form, else in OpenAI's."""
        if named:
            data = orjson.dumps({"type": "error", "error": self._shown()})
            return b"event: error\ndata: " + data + b"\n\n"
        return b"data: " + self.body() + b"\n\n"


def engine_is_dead(answer: bytes) -> bool:
    """Whether a 500's body, or a stream's first event, is how vLLM says this."""
    start = answer.find(b"{")
    try:
        data = orjson.loads(answer[start:].partition(b"\n")[0]) if start >= 0 else None
    except orjson.JSONDecodeError:
        return False
    error = data.get("error") if type(data) is dict else None
    message = error.get("message") if type(error) is dict else None
    return type(message) is str and message.startswith(_ENGINE_DIED)
