"""Reasons of kvaware fallback decisions, and when fallbacks are too frequent. Pure.

Codes are those of `emberline_router_kv_fallbacks_total`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Minimum requests in the window, and the tolerated fallback share.
MIN_REQUESTS = 20
TOLERATED_SHARE = 0.5
# Not a kvaware problem: warm-up, or the engine rejects the request as well.
IGNORED = frozenset({"starting", "bad_request"})

_EVENTS = (
    "Run the doctor: it lists the workers without KV events and the setting to change. "
    "Usually --kv-events-config is missing."
)
_TOKENS = (
    "Run the doctor: it shows where the router's tokens differ from the workers' and which option "
    "to set (--tokenizer, --chat-template)."
)
_CALLERS = (
    "No fault: these requests cannot be routed by cache contents. If most requests are like this, "
    "prefixaware gives the same result at lower cost."
)
_SLOW = (
    "Tokenization is too slow: give the router the model folder (--tokenizer) and a dedicated "
    "core, or raise --kv-wait."
)

_REMEDIES = {
    "no_events": _EVENTS,
    "template_error": "The model's chat template rejects these messages, or it has none: use "
    "/v1/completions, or start the workers (and the router) with a --chat-template.",
    "unsupported_path": "Cache-aware routing covers /v1/completions and /v1/chat/completions. "
    "Use one of them, or set this endpoint's strategy to prefixaware.",
    "queue_full": _SLOW,
    "timeout": _SLOW,
    "no_tokenizer": _TOKENS,
    "unverified": _TOKENS,
    "mismatch": _TOKENS,
    "remote_error": _TOKENS,
    "tokenizer_error": _TOKENS,
}
# Caused by the request's form, not by router or worker state.
FORM_REASONS = frozenset(
    {
        *("multimodal", "several_prompts", "unsupported_path", "unsupported_field"),
        *("template_error", "too_large", "streamed"),
    }
)


def find_remedy(reason: str) -> str:
    return _REMEDIES.get(reason, _CALLERS)


@dataclass(frozen=True, slots=True)
class FallbackVerdict:
    """Requests that could have been placed by blocks but were not."""

    requests: int
    fallbacks: Mapping[str, int]

    @property
    def share(self) -> float:
        return sum(self.fallbacks.values()) / self.requests if self.requests else 0.0

    @property
    def too_often(self) -> bool:
        return self.requests >= MIN_REQUESTS and self.share > TOLERATED_SHARE

    @property
    def main(self) -> str:
        return max(self.fallbacks, key=lambda reason: self.fallbacks[reason], default="")


def judge_fallbacks(requests: int, fallbacks: Mapping[str, int]) -> FallbackVerdict:
    """Judge fallbacks; `requests` is the total, `fallbacks` counts by reason."""
    meant = {reason: count for reason, count in fallbacks.items() if reason not in IGNORED}
    ignored = sum(fallbacks.values()) - sum(meant.values())
    return FallbackVerdict(requests - ignored, meant)
