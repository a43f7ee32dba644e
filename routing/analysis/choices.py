"""Routing decisions as routers record them, and their filters. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from routing.analysis.kv_index import Readers, read_fields
from routing.analysis.label_names import get_name
from routing.engine.observe.decisions import has_failed
from routing.engine.policies import cost

OUTCOMES = {
    "": "Any",
    **{code: get_name("outcome", code) for code in ("ok", "failed", "running", "missed")},
}
NAMES = ("reason", "worker", "key", "model", "outcome", "session")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Worker at the time of a routing decision. `matched` is tokens by kind."""

    worker: str
    matched: dict[str, int]
    in_flight: int
    score: float | None
    healthy: bool
    chosen: bool
    work: int | None = None  # tokens of queued work: its score without this prompt

    @property
    def matched_tokens(self) -> int:
        return sum(self.matched.values())

    @property
    def tiers(self) -> list[tuple[str, str, int]]:
        """Return (key, label, tokens) per tier, if the router tracked cache contents."""
        held = (key for key in ("gpu", "l1", "l2") if key in self.matched)
        return [(key, get_name("tier", key), self.matched[key]) for key in held]


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """Routing decision for display. None: not known (yet) or not reported by the engine."""

    id: str
    time: datetime | None
    strategy: str
    reason: str
    chosen: str
    prompt_tokens: int | None
    predicted_cached_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    ttft_s: float | None
    duration_s: float | None
    status: int | None
    attempts: int
    session: str
    key_id: str
    model: str
    prefix_blocks: int
    candidates: tuple[Candidate, ...]
    candidates_total: int  # total; records list only some
    raw: dict[str, Any] = field(repr=False)
    key_name: str = ""  # filled in for display (endpoints.router.selectors.name_keys)

    @property
    def label(self) -> str:
        return reason_label(self.reason)

    @property
    def sentence(self) -> str:
        return reason_description(self.reason)

    @property
    def failed(self) -> bool:
        """Return whether the status is an error or the response was cut off."""
        return has_failed(self.status, str(self.raw.get("error") or ""))

    @property
    def tied(self) -> int:
        """Return the number of other eligible workers of the chosen one's cost."""
        scores = (worker.score for worker in self.candidates if worker.chosen)
        cost_of_chosen = next(scores, None)
        if cost_of_chosen is None or self.strategy in ("roundrobin", "session"):
            return 0
        others = (worker for worker in self.candidates if worker.healthy and not worker.chosen)
        return sum(worker.score == cost_of_chosen for worker in others)

    @property
    def computed_tokens(self) -> int:
        return max(0, (self.prompt_tokens or 0) - (self.cached_tokens or 0))

    @property
    def cached_percent(self) -> int | None:
        if self.cached_tokens is None or not self.prompt_tokens:
            return None
        return min(100, round(100 * self.cached_tokens / self.prompt_tokens))


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """Decision filter; empty fields match all."""

    reason: str = ""
    worker: str = ""
    key: str = ""
    model: str = ""
    outcome: str = ""
    session: str = ""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> DecisionFilter:
        """Parse query parameters, ignoring unknown values (URLs of other versions)."""
        choices = {name: str(given.get(name, ""))[:200] for name in NAMES}
        if choices["outcome"] not in OUTCOMES:
            choices["outcome"] = ""
        return cls(**choices)

    @property
    def active(self) -> bool:
        return self != DecisionFilter()

    def takes(self, decision: RoutingDecision) -> bool:
        return (
            self.reason in ("", decision.reason)
            and self.worker in ("", decision.chosen)
            and self.key in ("", decision.key_id)
            and self.model in ("", decision.model)
            and self.session in ("", decision.session)
            and _has_outcome(self.outcome, decision)
        )


def _has_outcome(outcome: str, decision: RoutingDecision) -> bool:
    if outcome == "running":
        return decision.status is None
    if outcome == "failed":
        return decision.failed
    if outcome == "missed":
        cached, hoped = decision.cached_tokens, decision.predicted_cached_tokens
        return cached is not None and bool(hoped) and cached < (hoped or 0) / 2
    return outcome == "" or (decision.status is not None and not decision.failed)


_DESCRIPTIONS = {
    "prefix_hit": "The worker served a prompt with the same prefix, so its cache likely holds it.",
    "kv_hit": "The worker's KV events report that its cache holds the prefix of this prompt.",
    "session_sticky": "All requests of a session go to one worker, whose cache holds its history.",
    "round_robin": "Workers are selected in turn, regardless of the prompt.",
    "fallback_no_match": "No worker is known to hold the prefix of this prompt; the least loaded "
    "worker was selected.",
    "fallback_least_loaded": "A worker holds the prefix but is overloaded; a less loaded worker "
    "was selected.",
    "fallback_unhealthy": "The preferred worker failed its health check; the next best worker was "
    "selected.",
    "retry": "The first worker failed before its first byte; another worker was selected.",
    "pinned": "The request named this worker (x-emberline-pin).",
}
# Reason to its display name and description.
REASONS = {
    reason: (get_name("reason", reason), description)
    for reason, description in _DESCRIPTIONS.items()
}


def reason_label(reason: str) -> str:
    """Return the label of a reason, the code itself if unknown."""
    return get_name("reason", reason)


def reason_description(reason: str) -> str:
    return REASONS.get(reason, (reason, ""))[1]


def read_decision(raw: dict[str, Any]) -> RoutingDecision:
    """Parse a router's record; missing fields of other versions are None."""
    chosen = str(raw.get("chosen") or "")
    moment = as_number(raw.get("time"))
    tokens = _whole(raw.get("prompt_tokens"))
    candidates = tuple(_candidate(item, chosen, tokens) for item in raw.get("candidates") or ())
    return read_fields(
        RoutingDecision,
        raw,
        _READERS,
        time=datetime.fromtimestamp(moment, UTC) if moment else None,
        prefix_blocks=_whole(raw.get("prefix_blocks")) or len(raw.get("prefix") or ()),
        candidates=candidates,
        candidates_total=max(_whole(raw.get("candidates_total")) or 0, len(candidates)),
        raw=raw,
    )


def _candidate(item: dict[str, Any], chosen: str, prompt_tokens: int | None) -> Candidate:
    count = item.get("matched")
    matched = {
        str(kind): _whole(tokens) or 0
        for kind, tokens in (count if isinstance(count, dict) else {}).items()
    }
    score = as_number(item.get("score"))
    work = None
    # Tokens of slower tiers are discounted, so there only the score is shown.
    if score is not None and prompt_tokens is not None and set(matched) <= {"prefix"}:
        uncached = max(0, prompt_tokens - sum(matched.values()))
        work = max(0, round(score - cost.cost(0.0, uncached)))
    mine = item.get("worker") == chosen
    return read_fields(Candidate, item, _READERS, matched=matched, work=work, chosen=mine)


def as_number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good else None


def _whole(value: Any) -> int | None:
    number = as_number(value)
    return int(number) if number is not None else None


_READERS: Readers = {
    "str": lambda value: str(value or ""),
    "int": lambda value: _whole(value) or 0,
    "int | None": _whole,
    "float | None": as_number,
    "bool": bool,
}
