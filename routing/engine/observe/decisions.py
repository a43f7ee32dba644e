"""Routing decisions in a bounded ring buffer.

Records contain no session names and no prompt text, unless the operator allowed a preview: both are
shown as keyed hashes, computed on display.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from routing.engine.kv.match import Match
from routing.engine.policies.base import Candidate, RequestFacts

SHOWN_BLOCKS: Final = 128  # longer prompts are truncated; `prefix_blocks` has the full count

Digest = Callable[[bytes], str]


class MissSplit:
    """Computed tokens by cause. `age_s`: since the lost part was last used; None: unknown.
    `offset`: first changed token. `place`: part of the prompt where it changed.
    """

    __slots__ = ("age_s", "evicted_at", "offset", "place", "tokens")

    def __init__(self, tokens: dict[str, int] | None = None) -> None:
        self.tokens: dict[str, int] = tokens or {}
        self.age_s: float | None = None
        self.evicted_at: float | None = None
        self.offset: int | None = None
        self.place = ""

    def show(self) -> dict[str, object]:
        return {
            "causes": self.tokens,
            "age_s": None if self.age_s is None else round(self.age_s, 1),
            "evicted_at": self.evicted_at,
            "changed_offset": self.offset,
            "changed_part": self.place,
        }


class Decision:
    """One routing decision, filled while its request is in progress; None: unknown."""

    __slots__ = (
        "answer_id", "arm", "attempts", "blocks", "cached_tokens", "candidates", "choices",
        "chosen", "compared", "completion_tokens", "counted", "duration_s", "error",
        "estimate_reason", "estimated", "fallback", "id", "key_id", "misses", "model",
        "predicted", "prefix", "preview", "prompt_tokens", "queued_s", "reason", "request_id",
        "requested", "reserved", "session", "sketch", "status", "strategy", "tiers", "time",
        "ttft_s", "unit",
    )  # fmt: skip

    def __init__(self, decision_id: str, time: float, strategy: str) -> None:
        self.id = decision_id
        self.time = time
        self.strategy = strategy
        self.request_id = ""
        self.key_id = ""
        self.model = ""
        self.session = b""
        self.prefix: Sequence[int] = ()
        self.preview = ""  # first characters of the prompt; "" unless the operator allowed it
        self.blocks = 0
        self.prompt_tokens = 0
        self.estimated = True
        self.estimate_reason = ""  # why its token counts are estimated
        self.counted = False  # tokens counted for its key
        self.choices = 1  # answers per prompt
        self.reserved = 0  # tokens of its key's budget
        self.candidates: Sequence[Candidate] = ()
        self.compared = 0  # number of candidates; `candidates` is a subset
        self.tiers: Mapping[str, Match] | None = None  # per candidate, from KV events
        self.fallback = ""  # why kvaware placed it without blocks
        self.chosen = ""
        self.reason = ""
        self.predicted = 0
        self.cached_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.queued_s = 0.0
        self.ttft_s: float | None = None
        self.duration_s: float | None = None
        self.status: int | None = None
        self.attempts = 0
        self.error = ""  # metric reason; "" on success
        self.misses: MissSplit | None = None  # computed tokens by cause; None: not reported
        self.requested = 0  # hash of the requested model's name
        self.arm = ""  # of a canary; "": none runs
        self.unit = 0  # hash of its session; 0: not assigned by session
        self.answer_id = ""  # where it is not known from the request ID
        self.sketch: Any = None  # PromptSketch of a request for diagnostics; never shown

    @property
    def failed(self) -> bool:
        return has_failed(self.status, self.error)

    def note(self, facts: RequestFacts, model: str) -> None:
        self.model = model
        self.session = facts.session
        self.blocks = len(facts.chain)
        self.prefix = facts.chain[:SHOWN_BLOCKS]
        self.prompt_tokens = facts.tokens

    def used(self) -> tuple[float | None, float | None, int]:
        """Return total, computed and completion tokens, for `RequestAdmission.done`."""
        if self.counted:
            prompt, completion = self.charged()
            tokens = prompt + completion
            cached = self.predicted if self.cached_tokens is None else self.cached_tokens
            return tokens, tokens - cached, 0 if self.estimated else completion
        if not self.attempts or (self.status or 0) >= 500:
            return 0.0, 0.0, 0  # no worker computed anything
        return None, None, 0

    def charged(self) -> tuple[int, int]:
        """Return prompt and completion tokens charged to the key. The engine computes a prompt once
        per answer, but reports it once.
        """
        return self.prompt_tokens * self.choices, self.completion_tokens or 0

    def show(self, endpoint: str, digest: Digest, brief: bool = False) -> dict[str, Any]:
        """Return the decision as plain data; `brief`: without prefix and candidates."""
        document: dict[str, Any] = {
            "id": self.id,
            "time": self.time,
            "endpoint": endpoint,
            "request_id": self.request_id,
            "key_id": self.key_id,
            "model": self.model,
            "session": digest(b"session:" + self.session) if self.session else "",
            "prefix_blocks": self.blocks,
            "prompt_tokens": self.prompt_tokens,
            "prompt_tokens_estimated": self.estimated,
            "estimate_reason": self.estimate_reason,
            "choices": self.choices,
            "strategy": self.strategy,
            "arm": self.arm,
            "candidates_total": self.compared,
            "chosen": self.chosen,
            "reason": self.reason,
            "fallback": self.fallback,
            "predicted_cached_tokens": self.predicted,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "queued_s": self.queued_s,
            "ttft_s": self.ttft_s,
            "duration_s": self.duration_s,
            "status": self.status,
            "attempts": self.attempts,
            "error": self.error,
            "misses": None if self.misses is None else self.misses.show(),
        }
        if not brief:
            document["prefix"] = [digest(block.to_bytes(8, "big")) for block in self.prefix]
            document["candidates"] = show_candidates(self.candidates, self.tiers)
        return document


def has_failed(status: int | None, error: str) -> bool:
    """Return True for an error status or a truncated answer. A client that hangs up during its
    answer is no failure.
    """
    return (status or 0) >= 400 or error not in ("", "client_cancelled")


def show_candidates(
    candidates: Sequence[Candidate], tiers: Mapping[str, Match] | None
) -> list[dict[str, Any]]:
    return [
        {
            "worker": worker,
            "matched": {"prefix": matched} if tiers is None else _tokens_by_tier(tiers[worker]),
            "in_flight": in_flight,
            "score": round(cost),
            "healthy": healthy,
        }
        for worker, matched, in_flight, cost, healthy in candidates
    ]


def _tokens_by_tier(found: Match) -> dict[str, int]:
    return {"gpu": found.gpu, "l1": found.l1, "l2": found.l2}


class DecisionRing:
    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._by_id: dict[str, Decision] = {}
        self._order: list[Decision | None] = [None] * keep
        self._next = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, decision: Decision) -> None:
        old = self._order[self._next]
        if old is not None:
            del self._by_id[old.id]
        self._order[self._next] = decision
        self._by_id[decision.id] = decision
        self._next = (self._next + 1) % self.keep

    def get(self, number: str) -> Decision | None:
        return self._by_id.get(number)

    def newest(self, limit: int) -> list[Decision]:
        out: list[Decision] = []
        index = self._next
        for _ in range(min(limit, len(self._by_id))):
            index = (index - 1) % self.keep
            decision = self._order[index]
            assert decision is not None  # every known id has a filled slot
            out.append(decision)
        return out

    def resized(self, keep: int) -> DecisionRing:
        ring = DecisionRing(keep)
        for decision in reversed(self.newest(keep)):
            ring.add(decision)
        return ring


def known_elsewhere(decision: Decision, facts: RequestFacts) -> int:
    """Return the blocks of a prompt that its pick found on another worker than the chosen one."""
    most = 0
    for worker, matched, _, _, _ in decision.candidates:  # a hot path
        if matched > most and worker != decision.chosen:
            most = matched
    if not most:
        return 0
    chains = facts.blocks.chains if facts.blocks is not None else ()
    rest = min(chains, default=1) - 1  # behind the last whole block of the engine
    whole = len(facts.chain)
    # A block of text holds fewer tokens than estimated where words are long.
    per_block = max(min(facts.block_tokens, facts.tokens / max(whole, 1)), 1.0)
    return min(math.ceil((most + rest) / per_block), whole)
