"""So many a minute: a token bucket which may go into debt.

A bucket holds at most what one minute allows and fills evenly, so over any time T no more than
`per_minute * (T + 1 minute)` passes. Costs of LLM requests are known only afterwards: an estimate
is taken first and the difference given back (or taken as well) when the engine has counted. A
request which costs more than a whole minute allows passes when the bucket is full and leaves it
in debt: it is slowed down to its rate instead of being refused for ever.

Promises that `wait_s` is the truth while nobody else takes. Must not know whose bucket it is.
"""

from __future__ import annotations


class Bucket:
    __slots__ = ("_level", "_per_s", "_seen", "per_minute")

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._per_s = per_minute / 60
        self._level = float(per_minute)
        self._seen = now

    def level(self, now: float) -> float:
        """What is left now; below zero: a debt."""
        if now > self._seen:
            self._level = min(self._level + (now - self._seen) * self._per_s, self.per_minute)
            self._seen = now
        return self._level

    def wait_s(self, cost: float, now: float) -> float:
        """Seconds until `cost` may be taken; 0: now."""
        missing = min(cost, self.per_minute) - self.level(now)
        return missing / self._per_s if missing > 0 else 0.0

    def take(self, cost: float) -> None:
        """Whether it is there or not: ask `wait_s` before. A negative cost is given back."""
        self._level = min(self._level - cost, self.per_minute)

    def resize(self, per_minute: int, now: float) -> None:
        """Another rate from now on: what was used stays used, in the old measure's share."""
        self._level = self.level(now) / self.per_minute * per_minute
        self.per_minute = per_minute
        self._per_s = per_minute / 60
