"""What can become of the wish to know a prompt's tokens, each with a name that is counted.

Promises that every request ends in exactly one of these reasons. Those with tokens say where they
came from; the others say why a request is routed without them.
"""

from __future__ import annotations

# With tokens.
IDS = "ids"  # the prompt was token ids already
CACHED = "cached"  # every segment was known
SHORT = "short"  # new, and so short that it was tokenized at once
EXTENDED = "extended"  # a known beginning; what is new was short and tokenized at once
TOKENIZED = "tokenized"  # tokenized here, off the event loop
REMOTE = "remote"  # a worker's /tokenize

# Without: the request itself.
BAD_REQUEST = "bad_request"  # the engine will refuse it, too
MULTIMODAL = "multimodal"  # images, sound, film: the engine puts tokens of its own in their place
SEVERAL_PROMPTS = "several_prompts"  # a list of prompts is several lists of tokens
UNSUPPORTED_PATH = "unsupported_path"
UNSUPPORTED_FIELD = "unsupported_field"  # a field which changes the prompt in a way not done here
TEMPLATE_ERROR = "template_error"  # the chat template refused the messages
TOO_LARGE = "too_large"

# Without: this router, now.
NO_TOKENIZER = "no_tokenizer"
UNVERIFIED = "unverified"  # it may differ from the worker's, and nobody has compared them
MISMATCH = "mismatch"  # it was compared, and differs
QUEUE_FULL = "queue_full"
TIMEOUT = "timeout"
REMOTE_ERROR = "remote_error"
ERROR = "tokenizer_error"

WITH_TOKENS = (IDS, CACHED, SHORT, EXTENDED, TOKENIZED, REMOTE)
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
    """There are none to be had for this request; `reason` is one of WITHOUT."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
