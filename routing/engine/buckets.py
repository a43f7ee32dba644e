"""So many a minute: a token bucket which may go into debt.

A bucket holds at most what one minute allows and fills evenly, so over any time T no more than
`per_minute * (T + 1 minute)` passes. Costs of LLM requests are known only afterwards: an estimate
is taken first and the difference given back (or taken as well) when the engine has counted. A
request which costs more than a whole minute allows passes when the bucket is full and leaves it
in debt: it is slowed down to its rate instead of being refused for ever.

All that is kept is the time at which the bucket will be full again, so nothing has to be refilled
and another rate keeps what was used in proportion.

Promises that `wait_s` is the truth while nobody else takes. Must not know whose bucket it is.
"""

from __future__ import annotations

_MINUTE_S = 60.0


class Bucket:
    __slots__ = ("_each_s", "_full_at", "per_minute")

    def __init__(self, per_minute: int) -> None:
        self._full_at = 0.0
        self.resize(per_minute)

    def resize(self, per_minute: int) -> None:
        """Another rate from now on."""
        self.per_minute = per_minute
        self._each_s = _MINUTE_S / per_minute

    def level(self, now: float) -> float:
        """What is left now; below zero: a debt."""
        return self.per_minute - max(self._full_at - now, 0.0) / self._each_s

    def wait_s(self, cost: float, now: float) -> float:
        """Seconds until `cost` may be taken; not above 0: now."""
        spare = _MINUTE_S - cost * self._each_s
        return self._full_at - now - (spare if spare > 0 else 0.0)

    def take(self, cost: float, now: float) -> None:
        """Whether it is there or not: ask `wait_s` before. A negative cost is given back."""
        full_at = self._full_at
        self._full_at = (full_at if full_at > now else now) + cost * self._each_s
