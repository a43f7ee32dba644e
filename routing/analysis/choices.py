"""Filters of routing decisions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

OUTCOMES = {
    "": "any",
    "ok": "answered",
    "failed": "failed",
    "running": "running",
    "missed": "expected in cache, and was not",
}
NAMES = ("reason", "worker", "key", "outcome", "session")


class DecisionLike(Protocol):
    """Decision fields used by filters (selectors.RoutingDecision)."""

    @property
    def reason(self) -> str: ...
    @property
    def chosen(self) -> str: ...
    @property
    def key_id(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def status(self) -> int | None: ...
    @property
    def failed(self) -> bool: ...
    @property
    def cached_tokens(self) -> int | None: ...
    @property
    def predicted_cached_tokens(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """Decision filter; empty fields match all."""

    reason: str = ""
    worker: str = ""
    key: str = ""
    outcome: str = ""
    session: str = ""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> DecisionFilter:
        """Parse query parameters, ignoring unknown values (URLs of other versions)."""
        found = {name: str(given.get(name, ""))[:200] for name in NAMES}
        if found["outcome"] not in OUTCOMES:
            found["outcome"] = ""
        return cls(**found)

    @property
    def active(self) -> bool:
        return self != DecisionFilter()

    def takes(self, decision: DecisionLike) -> bool:
        return (
            self.reason in ("", decision.reason)
            and self.worker in ("", decision.chosen)
            and self.key in ("", decision.key_id)
            and self.session in ("", decision.session)
            and _has_outcome(self.outcome, decision)
        )


def _has_outcome(outcome: str, decision: DecisionLike) -> bool:
    if outcome == "running":
        return decision.status is None
    if outcome == "failed":
        return decision.failed
    if outcome == "missed":
        told, hoped = decision.cached_tokens, decision.predicted_cached_tokens
        return told is not None and bool(hoped) and told < (hoped or 0) / 2
    return outcome == "" or (decision.status is not None and not decision.failed)


REASONS: dict[str, tuple[str, str]] = {
    "prefix_hit": (
        "Prefix known",
        "This worker has served a prompt that begins the same way, so it likely still holds it.",
    ),
    "kv_hit": (
        "Cache reported",
        "This worker has reported that it holds the beginning of this prompt.",
    ),
    "session_sticky": (
        "Same session",
        "Requests of one session go to one worker, which holds what was said before.",
    ),
    "round_robin": ("In turn", "Workers are taken in turn; the prompt does not matter."),
    "fallback_no_match": (
        "Nothing known",
        "No worker is known to hold the beginning of this prompt; the least loaded one took it.",
    ),
    "fallback_least_loaded": (
        "Load won",
        "A worker holds the beginning, but it had so much to do that another one is faster.",
    ),
    "fallback_unhealthy": (
        "Best was down",
        "The best worker did not pass its health check; the next best one took the request.",
    ),
    "retry": (
        "Sent again",
        "The first worker failed before its first byte; another one took the request.",
    ),
    "pinned": ("Pinned", "The caller named this worker (x-emberline-pin)."),
}
STRATEGIES = {
    "prefixaware": "to the worker that has seen the prompt's beginning, unless it is overloaded",
    "kvaware": "to the worker that reports to hold the prompt's beginning",
    "session": "every request of one session to the same worker",
    "roundrobin": "to each worker in turn",
}


def reason_label(reason: str) -> str:
    """Return the label of a reason, the code itself if unknown."""
    return REASONS.get(reason, (reason, ""))[0]


def reason_description(reason: str) -> str:
    return REASONS.get(reason, (reason, ""))[1]
