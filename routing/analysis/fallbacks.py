"""Why kvaware placed a request without its blocks, in words, and when that is too often. Pure.

The codes are the engine's (`emberline_router_kv_fallbacks_total`). Must not know Django.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Over a window, so many requests at least, and more than this share of them.
FEWEST = 20
SHARE = 0.5
# Says nothing of kvaware: it has just begun, or the engine refuses the request as well.
IGNORED = frozenset({"starting", "bad_request"})

_EVENTS = (
    "Run the doctor: it names the workers whose events are not followed, and what to set. "
    "Mostly --kv-events-config is missing."
)
_TOKENS = (
    "Run the doctor: it says where the router's tokens differ from the workers', and what to give "
    "it (--tokenizer, --chat-template)."
)
_CALLERS = (
    "Nothing is broken: these requests cannot be placed by blocks. If most are such, prefixaware "
    "costs less and does the same."
)
_SLOW = (
    "Tokenizing takes too long: give the router the model's folder (--tokenizer) and a core of "
    "its own, or raise --kv-wait."
)

WORDS = {
    "no_events": "no worker's events are followed",
    "starting": "the tokenizer is being loaded",
    "streamed": "the body is too large to be held, or not JSON",
    "bad_request": "the engine would refuse it, too",
    "multimodal": "images or sound",
    "several_prompts": "a list of prompts",
    "unsupported_path": "a path other than completions and chat completions",
    "unsupported_field": "a field which changes the prompt in its own way",
    "template_error": "the chat template refuses the messages",
    "too_large": "the prompt is too large",
    "no_tokenizer": "nobody can tokenize",
    "unverified": "tokens were not compared with a worker's yet",
    "mismatch": "tokens differ from the workers'",
    "queue_full": "too many prompts wait for their tokens",
    "timeout": "tokens took longer than --kv-wait",
    "remote_error": "the worker did not tokenize",
    "tokenizer_error": "the tokenizer failed",
}
_REMEDIES = {
    "no_events": _EVENTS,
    "template_error": "The model's chat template refuses these messages, or it has none: send "
    "/v1/completions, or start the workers (and the router) with a --chat-template.",
    "unsupported_path": "Only /v1/completions and /v1/chat/completions can be placed by blocks. "
    "Use one of them, or let this endpoint run prefixaware.",
    "queue_full": _SLOW,
    "timeout": _SLOW,
    "no_tokenizer": _TOKENS,
    "unverified": _TOKENS,
    "mismatch": _TOKENS,
    "remote_error": _TOKENS,
    "tokenizer_error": _TOKENS,
}
# The request's own form, not the router's or a worker's state.
FORM = frozenset(
    {
        "multimodal",
        "several_prompts",
        "unsupported_path",
        "unsupported_field",
        "template_error",
        "too_large",
        "streamed",
    }
)


def remedy(reason: str) -> str:
    return _REMEDIES.get(reason, _CALLERS)


@dataclass(frozen=True, slots=True)
class FallbackVerdict:
    """Of some requests: how many could have been placed by their blocks, and were not."""

    requests: int
    fallbacks: Mapping[str, int]

    @property
    def share(self) -> float:
        return sum(self.fallbacks.values()) / self.requests if self.requests else 0.0

    @property
    def too_often(self) -> bool:
        return self.requests >= FEWEST and self.share > SHARE

    @property
    def main(self) -> str:
        """The most frequent reason."""
        return max(self.fallbacks, key=lambda reason: self.fallbacks[reason], default="")


def judge(requests: int, fallbacks: Mapping[str, int]) -> FallbackVerdict:
    """`requests` counts all of them, `fallbacks` by reason those placed without their blocks."""
    meant = {reason: count for reason, count in fallbacks.items() if reason not in IGNORED}
    ignored = sum(fallbacks.values()) - sum(meant.values())
    return FallbackVerdict(requests - ignored, meant)
