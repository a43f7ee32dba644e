"""What each key has used since this process began: requests, errors and tokens, for whoever bills.

Promises sums that equal the router's own totals, since every ended request is added to exactly one
key; that only tokens an engine reported are counted as tokens, and that requests it said nothing
of are counted as such; and a bounded number of keys. Must not know sockets, nor what a token costs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from routing.engine.decisions import Decision

KEPT = 4096
"""Keys remembered. Ids come from the key file, never from callers; beyond so many, those which are
no longer in the file and were idle longest go, and what they used goes into `FORGOTTEN`."""
FORGOTTEN = "(forgotten)"


class Use:
    """Of one key. `unreported`: answered requests of which no engine told the tokens."""

    __slots__ = ("cached", "completion", "errors", "last_at", "prompt", "requests", "unreported")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.prompt = 0
        self.cached = 0
        self.completion = 0
        self.unreported = 0
        self.last_at = 0.0

    def add(self, decision: Decision, now: float) -> None:
        self.requests += 1
        self.last_at = now
        if decision.error:
            self.errors += 1
        if not decision.estimated:
            self.prompt += decision.prompt_tokens
            self.cached += decision.cached_tokens or 0
            self.completion += decision.completion_tokens or 0
        elif decision.status == 200:
            self.unreported += 1

    def absorb(self, other: Use) -> None:
        for name in ("requests", "errors", "prompt", "cached", "completion", "unreported"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.last_at = max(self.last_at, other.last_at)

    def show(self) -> dict[str, float]:
        return {
            "requests": self.requests,
            "errors": self.errors,
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "completion_tokens": self.completion,
            "unreported": self.unreported,
            "last_at": self.last_at,
        }


class KeyUse:
    """`instance` names this process: who adds up knows by it when counting began anew."""

    def __init__(self, instance: str, kept: int = KEPT) -> None:
        self.instance = instance
        self._kept = kept
        self._of: dict[str, Use] = {}

    def add(self, decision: Decision) -> None:
        use = self._of.get(decision.key_id)
        if use is None:
            use = self._of[decision.key_id] = Use()
        use.add(decision, time.time())

    def configure(self, known: frozenset[str]) -> None:
        """These are the keys now. A key which is gone is still shown, for it was used."""
        gone = [key for key in self._of if key not in known and key not in ("", FORGOTTEN)]
        gone.sort(key=lambda key: self._of[key].last_at)
        for key in gone[: max(0, len(self._of) - self._kept)]:
            self._of.setdefault(FORGOTTEN, Use()).absorb(self._of.pop(key))

    def show(self) -> dict[str, object]:
        """By the key's id; "" is everybody where no keys are configured."""
        return {
            "instance": self.instance,
            "keys": {key: use.show() for key, use in sorted(self._of.items())},
        }
