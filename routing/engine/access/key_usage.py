"""Usage per key since process start, and remaining budgets.

Every ended request is added to exactly one key, so the sums equal the router totals. In-flight
requests count with their reservation. The console sums all routers and sends each its remaining
share and what all have left (`apply_budgets`); routers that exchange state use the latter
(`shared_budget`). A request is admitted while anything is left, so the overrun is at most one
request plus what in-flight requests use beyond their estimates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from routing.engine.access.shared_budget import SharedBudget
from routing.engine.errors import Refusal

if TYPE_CHECKING:
    from routing.engine.config import Key
    from routing.engine.observe.decisions import Decision

MAX_KEYS: Final = 4096
"""Maximum number of keys with usage. Ids come from the key file, never from callers. Beyond the
limit, keys removed from the file are dropped, longest idle first, and their usage is added to
`REMOVED_KEYS`.
"""
REMOVED_KEYS: Final = "(forgotten)"
_SUM_FIELDS: Final = (
    *("requests", "errors", "prompt", "cached", "completion", "unreported"),
    *("estimated_prompt", "estimated_completion"),
)
_RESERVED_RETRY_S: Final = 1


@dataclass(slots=True)
class KeyTotals:
    """Usage of one key. `unreported`: requests with estimated tokens.

    `left`: remaining budget when `counted` of its own tokens were included, valid until
    `resets_at`; None: not received. `reserved`: tokens reserved by in-flight requests.
    `budget`: 0 until a request with a budget came. `shared`: with the other routers.
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
    budget: int = 0
    shared: SharedBudget = field(default_factory=SharedBudget)

    @property
    def used(self) -> int:
        return self.prompt + self.completion

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

    def begin_period(self, instance: str, now: float) -> None:
        """Forget what was left of a period that has ended; the console sends it within seconds."""
        if now >= self.resets_at:
            self.left, self.counted = None, self.used
            self.resets_at = math.inf
            self.shared.begin_period(instance, self.used)

    def unused(self, routers: int) -> int:
        """Return what this router has left without the others; `routers` divide a budget."""
        left = self.budget // routers if self.left is None else self.left
        return left - (self.used - self.counted)

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
        self._routers = 1  # that divide a budget without the console's shares
        self._exchanging: bool | None = None  # with other routers; None: no store is configured
        self.changed: dict[str, None] = {}  # keys with budgets whose figures peers do not have
        self.checked_alone = 0  # requests whose budget was checked while the store was away

    def of(self, key_id: str) -> KeyTotals:
        use = self._of.get(key_id)
        if use is None:
            use = self._of[key_id] = KeyTotals()
        return use

    def add(self, decision: Decision) -> None:
        use = self._of.get(decision.key_id) or self.of(decision.key_id)
        use.add(decision, time.time())
        if use.budget and self._exchanging is not None:
            self.changed[decision.key_id] = None

    def reserve(self, key: Key, decision: Decision, tokens: int) -> None:
        """Reserve tokens until the decision is added. Raise Refusal if the budget is exhausted."""
        use = self.of(key.id)
        use.budget = key.budget_tokens
        use.begin_period(self.instance, time.time())
        unused, reserved = self._unused(use)
        if self._exchanging is False:
            self.checked_alone += 1
        if unused <= 0:
            message = (
                f"This API key has exhausted its budget of {key.budget_tokens} tokens. "
                "Wait for its next period, or have the budget raised."
            )
            raise Refusal(
                "insufficient_quota", message, retry_after_s=_seconds_until(use.resets_at)
            )
        if unused <= reserved:
            message = (
                f"Requests in flight may use all {unused} remaining tokens of this API key's "
                "budget. Retry when one has completed, or set a lower max_tokens."
            )
            raise Refusal("budget_reserved", message, retry_after_s=_RESERVED_RETRY_S)
        use.reserved += tokens
        decision.reserved = tokens
        if self._exchanging is not None:
            self.changed[key.id] = None

    def _unused(self, use: KeyTotals) -> tuple[int, int]:
        """Return the tokens left and, of these, the reserved ones."""
        shared = use.shared
        if self._exchanging and (shared.left is not None or use.left is None):
            unused = shared.unused(use.budget, self.instance, use.used)
            return unused, use.reserved + shared.reserved
        return use.unused(self._routers), use.reserved

    def exchange(self, active: bool | None, routers: int = 1) -> None:
        """Use budgets together with other routers; False: the store is away, and each of `routers`
        uses an equal part; None: no store is configured.
        """
        if self._exchanging and not active:
            for use in self._of.values():
                if use.budget:
                    unused = use.shared.unused(use.budget, self.instance, use.used)
                    use.left = unused // routers if unused > 0 else unused
                    use.counted = use.used
        self._exchanging, self._routers = active, routers
        self.restate()

    def restate(self) -> None:
        """State all budgets again, since a peer may not have received them."""
        if self._exchanging is not None:
            self.changed |= dict.fromkeys(key for key, use in self._of.items() if use.budget)

    def take_changed(self, most: int) -> Iterator[tuple[str, int, int, int]]:
        """Yield keys with their used, reserved and left tokens, for peers."""
        for key_id in list(islice(self.changed, most)):
            del self.changed[key_id]
            use = self._of.get(key_id)
            if use is not None:
                unused = use.shared.unused(use.budget, self.instance, use.used)
                yield key_id, use.used, use.reserved, unused

    def apply_peer(
        self, instance: str, key_id: str, used: int, reserved: int, left: int, newer: bool
    ) -> None:
        """Apply a peer's figures of a key."""
        if key_id in self._known:
            self.of(key_id).shared.apply_peer(instance, used, reserved, left, newer)

    def lost(self, instance: str) -> None:
        """Release what a peer that ended has reserved."""
        for use in self._of.values():
            use.shared.lost(instance)

    def apply_budgets(self, instance: str, budgets: Mapping[str, Any]) -> None:
        """Apply remaining budgets by key id, sent by the console. Values for an earlier process are
        ignored.
        """
        if instance != self.instance:
            return
        for key_id in self._known.intersection(budgets):
            budget = budgets[key_id]
            left, counted, resets_at = budget["left"], budget["counted"], budget["resets_at"]
            together = budget.get("all")
            if together is not None:
                included = {str(name): int(n) for name, n in together["counted"].items()}
                all_left = int(together["left"])
            use = self.of(key_id)
            use.left, use.counted, use.resets_at = int(left), int(counted), float(resets_at)
            if together is not None:
                use.shared.set_left(all_left, included)

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
