"""Outcomes of determining a prompt's tokens; each request has exactly one."""

from __future__ import annotations

# With tokens.
IDS = "ids"
CACHED = "cached"  # all segments known
SHORT = "short"  # new, tokenized inline
EXTENDED = "extended"  # known prefix, short new part tokenized inline
TOKENIZED = "tokenized"
REMOTE = "remote"
RENDERED = "rendered"  # by a worker's own renderer: tools, tool results, thinking

# Without tokens, because of the request.
BAD_REQUEST = "bad_request"
MULTIMODAL = "multimodal"  # media are replaced by engine tokens
SEVERAL_PROMPTS = "several_prompts"  # several lists of tokens
UNSUPPORTED_PATH = "unsupported_path"
UNSUPPORTED_FIELD = "unsupported_field"
TEMPLATE_ERROR = "template_error"
TOO_LARGE = "too_large"

# Without tokens, because of the router's state.
NO_TOKENIZER = "no_tokenizer"
UNVERIFIED = "unverified"  # not yet compared with the worker's
MISMATCH = "mismatch"
QUEUE_FULL = "queue_full"
TIMEOUT = "timeout"
REMOTE_ERROR = "remote_error"
ERROR = "tokenizer_error"

WITH_TOKENS = (IDS, CACHED, SHORT, EXTENDED, TOKENIZED, REMOTE, RENDERED)
WITHOUT = (
    BAD_REQUEST,
    MULTIMODAL,
    SEVERAL_PROMPTS,
    UNSUPPORTED_PATH,
    UNSUPPORTED_FIELD,
    TEMPLATE_ERROR,
    TOO_LARGE,
    NO_TOKENIZER,
    UNVERIFIED,
    MISMATCH,
    QUEUE_FULL,
    TIMEOUT,
    REMOTE_ERROR,
    ERROR,
)
REASONS = (*WITH_TOKENS, *WITHOUT)


class NoTokens(Exception):
    """No tokens for this request; `reason` is one of WITHOUT."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
