"""Error table of the router: status, OpenAI error type and metric reason of each refusal.

Bodies have OpenAI's shape, on Anthropic's paths Anthropic's, and stable codes. Counters exist for
all reasons from the start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

ANTHROPIC_PATHS = (b"/v1/messages", b"/v1/messages/count_tokens")


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One error code: HTTP status, OpenAI error type and metric reason.

    `shown`: the code in the response, where several kinds share one.
    """

    status: int
    type: str
    reason: str
    shown: str = ""


KINDS: dict[str, ErrorKind] = {
    "bad_request": ErrorKind(400, "invalid_request_error", "bad_request"),
    "request_timeout": ErrorKind(408, "invalid_request_error", "bad_request"),
    "body_too_large": ErrorKind(413, "invalid_request_error", "bad_request"),
    "invalid_json": ErrorKind(400, "invalid_request_error", "invalid_json"),
    "unsupported_encoding": ErrorKind(415, "invalid_request_error", "unsupported_encoding"),
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
    "origin_not_allowed": ErrorKind(403, "permission_error", "forbidden"),
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
    "file_descriptors": ErrorKind(503, "server_error", "file_descriptors"),
    "buffer_full": ErrorKind(503, "server_error", "buffer_full"),
    "queue_full": ErrorKind(429, "rate_limit_error", "queue_full"),
    "queue_timeout": ErrorKind(429, "rate_limit_error", "queue_timeout"),
    "no_healthy_worker": ErrorKind(503, "server_error", "no_healthy_worker"),
    "shutting_down": ErrorKind(503, "server_error", "shutting_down"),
    "internal_error": ErrorKind(500, "server_error", "internal_error"),
    "adapter_incomplete": ErrorKind(502, "server_error", "adapter_incomplete"),
    "engine_stuck": ErrorKind(504, "server_error", "engine_stuck"),
    "engine_died": ErrorKind(502, "server_error", "engine_died"),
    "upstream_connect": ErrorKind(502, "server_error", "upstream_connect"),
    "upstream_reset": ErrorKind(502, "server_error", "upstream_reset"),
    "upstream_timeout": ErrorKind(504, "server_error", "upstream_timeout"),
    "upstream_protocol": ErrorKind(502, "server_error", "upstream_protocol"),
}

# https://platform.claude.com/docs/en/api/errors; other statuses: by their first digit.
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

# Counted without an answer of the router: the reply was under way, the client is gone, or a
# worker's 5xx is forwarded.
SILENT_REASONS = ("client_cancelled", "broken_stream", "upstream_5xx", "stalled_client")
REASONS: tuple[str, ...] = (*dict.fromkeys(kind.reason for kind in KINDS.values()), *SILENT_REASONS)


# vLLM's message for a dead engine process: in a 500, or as an event of a stream. Its other 500s
# concern one request.
_ENGINE_DEAD_MESSAGE = "EngineCore encountered an issue."
# The same event within the validation error as which vLLM 0.32 reports it on /v1/messages.
_ENGINE_DEAD_SHORTENED = "input_value={'error': {'message': 'En...am': None, 'code': 500}}"
# OpenAI's and Anthropic's error events, and the last event of a failed response.
_ERROR_EVENT = re.compile(
    rb'^data: ?(\{"(?:error": ?\{|type": ?"(?:error|response\.failed)").*?)\r?$', re.MULTILINE
)


class Refusal(Exception):
    """Request rejected by the router.

    `retry_after_s`: value of Retry-After, 0: omitted. `final`: OpenAI's and Anthropic's
    clients must not retry. `lines`: further header lines of the answer.
    """

    final = False
    lines = b""

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

    def body(self, path: bytes = b"") -> bytes:
        """Return the error as JSON, in Anthropic's form on its paths, else in OpenAI's."""
        code = self.kind.shown or self.code
        error: dict[str, Any] = {
            "message": self.message,
            "type": self.kind.type,
            "code": code,
            "param": self.param,
        }
        if path not in ANTHROPIC_PATHS:
            return orjson.dumps({"error": error})
        status = self.kind.status
        other = "invalid_request_error" if status < 500 else "api_error"
        error["type"] = _ANTHROPIC_TYPES.get(status, other)
        error["details"] = {"error_code": code}
        return orjson.dumps({"type": "error", "error": error})

    def event(self, path: bytes) -> bytes:
        """Return the error as the last event of a stream."""
        name = b"event: error\n" if path in ANTHROPIC_PATHS else b""
        return b"%bdata: %b\n\n" % (name, self.body(path))


def is_engine_dead(answer: bytes) -> bool:
    """Return True if a 500's body or a stream's first event reports a dead engine."""
    start = answer.find(b"{")
    try:
        data = orjson.loads(answer[start:].partition(b"\n")[0]) if start >= 0 else None
    except orjson.JSONDecodeError:
        return False
    error = data.get("error") if type(data) is dict else None
    message = error.get("message") if type(error) is dict else None
    return type(message) is str and (
        message.startswith(_ENGINE_DEAD_MESSAGE) or _ENGINE_DEAD_SHORTENED in message
    )


def find_error_event(tail: bytes) -> bytes:
    """Return the error that a worker reported in the last events of a stream, or b""."""
    if b'"error"' not in tail:  # quotes of texts are escaped
        return b""
    match = _ERROR_EVENT.search(tail)
    return b"" if match is None else match[1]


def refuse_without_worker(paused: bool) -> Refusal:
    """Return the refusal of a request for which no worker is eligible."""
    text = "This endpoint is paused: it has 0 replicas. Resume it in the console."
    if not paused:
        text = "No worker can accept this request at the moment."
    return Refusal("no_healthy_worker", text)
