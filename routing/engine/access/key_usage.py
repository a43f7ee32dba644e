"""Usage per key since process start, and remaining budgets.

Every ended request is added to exactly one key, so the sums equal the router totals. In-flight
requests count with their reservation. The console sums all routers and sends each its remaining
share (`tell`). A request is admitted while anything is left, so the overrun is at most one request
plus what in-flight requests use beyond their estimates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from routing.engine.errors import Refusal

if TYPE_CHECKING:
    from routing.engine.config import Key
    from routing.engine.observe.decisions import Decision

MAX_KEYS = 4096
"""Maximum number of keys with usage. Ids come from the key file, never from callers. Beyond the
limit, keys removed from the file are dropped, longest idle first, and their usage is added to
`FORGOTTEN`.
"""
REMOVED_KEYS = "(forgotten)"
_SUM_FIELDS = (
    *("requests", "errors", "prompt", "cached", "completion", "unreported"),
    *("estimated_prompt", "estimated_completion"),
)
_RESERVED_RETRY_S = 1


@dataclass(slots=True)
class KeyTotals:
    """Usage of one key. `unreported`: requests with estimated tokens.

    `left`: remaining budget when `counted` of its own tokens were included, valid until
    `resets_at`; None: not received. `reserved`: tokens reserved by in-flight requests.
    """

    requests: int = 0
    errors: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    unreported: int = 0
    estimated_prompt: int = 0
    estimated_completion: int = 0
    last_at: float = 0.0
    reserved: int = 0
    left: int | None = None
    counted: int = 0
    resets_at: float = math.inf

    def add(self, decision: Decision, now: float) -> None:
        self.requests += 1
        self.last_at = now
        self.reserved -= decision.reserved
        decision.reserved = 0
        if decision.error:
            self.errors += 1
        if not decision.counted:
            return
        prompt, completion = decision.charged()
        self.prompt += prompt
        self.cached += decision.cached_tokens or 0
        self.completion += completion
        if decision.estimated:
            self.unreported += 1
            self.estimated_prompt += prompt
            self.estimated_completion += completion

    def absorb(self, other: KeyTotals) -> None:
        for name in _SUM_FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.last_at = max(self.last_at, other.last_at)

    def unused(self, budget: int, now: float) -> int:
        if now >= self.resets_at:  # the console sends new values within seconds
            self.left, self.counted = None, self.prompt + self.completion
            self.resets_at = math.inf
        left = budget if self.left is None else self.left
        return left - (self.prompt + self.completion - self.counted)

    def show(self) -> dict[str, float]:
        return {
            "requests": self.requests,
            "errors": self.errors,
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "completion_tokens": self.completion,
            "estimated_prompt_tokens": self.estimated_prompt,
            "estimated_completion_tokens": self.estimated_completion,
            "unreported": self.unreported,
            "reserved": self.reserved,
            "last_at": self.last_at,
        }


class KeyUse:
    """Usage of all keys. `instance` identifies this process, so that the console detects a counter
    reset.
    """

    def __init__(self, instance: str, kept: int = MAX_KEYS) -> None:
        self.instance = instance
        self._kept = kept
        self._of: dict[str, KeyTotals] = {}
        self._known: frozenset[str] = frozenset()

    def of(self, key_id: str) -> KeyTotals:
        use = self._of.get(key_id)
        if use is None:
            use = self._of[key_id] = KeyTotals()
        return use

    def add(self, decision: Decision) -> None:
        self.of(decision.key_id).add(decision, time.time())

    def reserve(self, key: Key, decision: Decision, tokens: int) -> None:
        """Reserve tokens until the decision is added. Raise Refusal if the budget is exhausted."""
        use = self.of(key.id)
        unused = use.unused(key.budget_tokens, time.time())
        if unused <= 0:
            message = (
                f"This API key has exhausted its budget of {key.budget_tokens} tokens. "
                "Wait for its next period, or have the budget raised."
            )
            raise Refusal(
                "insufficient_quota", message, retry_after_s=_seconds_until(use.resets_at)
            )
        if unused <= use.reserved:
            message = (
                f"Requests in flight may use all {unused} remaining tokens of this API key's "
                "budget. Retry when one has completed, or set a lower max_tokens."
            )
            raise Refusal("budget_reserved", message, retry_after_s=_RESERVED_RETRY_S)
        use.reserved += tokens
        decision.reserved = tokens

    def tell(self, instance: str, budgets: Mapping[str, Any]) -> None:
        """Apply remaining budgets by key id, sent by the console. Values for an earlier process are
        ignored.
        """
        if instance != self.instance:
            return
        for key_id in self._known.intersection(budgets):
            told = budgets[key_id]
            left, counted, resets_at = told["left"], told["counted"], told["resets_at"]
            use = self.of(key_id)
            use.left, use.counted, use.resets_at = int(left), int(counted), float(resets_at)

    def configure(self, known: frozenset[str]) -> None:
        self._known = known
        gone = [
            key
            for key, use in self._of.items()
            if key not in known and key not in ("", REMOVED_KEYS) and not use.reserved
        ]
        gone.sort(key=lambda key: self._of[key].last_at)
        for key in gone[: max(0, len(self._of) - self._kept)]:
            self._of.setdefault(REMOVED_KEYS, KeyTotals()).absorb(self._of.pop(key))

    def show(self) -> dict[str, object]:
        """Return usage by key id; "" counts all callers where no keys are configured."""
        return {
            "instance": self.instance,
            "keys": {key: use.show() for key, use in sorted(self._of.items())},
        }


def _seconds_until(moment: float) -> int:
    left = moment - time.time()
    return max(1, math.ceil(left)) if math.isfinite(left) else 60
