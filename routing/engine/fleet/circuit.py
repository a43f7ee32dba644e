"""A worker's circuit breaker: what its requests' ends say about it, where health checks do not.

Promises the usual three states. *Closed*: it is trusted. *Open*: too many requests in a row
failed; it is left out for a pause, twice as long each time. *Half open*: the pause is over, and
one request, alone, may try; its answer closes the circuit, its failure opens it again. A trial
which ends without a verdict (its client hung up) makes room for the next one.
Must not know workers or requests.
"""

from __future__ import annotations

from routing.engine.config import HealthConfig

CLOSED, OPEN, HALF_OPEN = range(3)
NAMES = ("closed", "open", "half_open")
TRIAL_S = 30.0  # a trial which says nothing for so long does not keep others from trying


class Circuit:
    __slots__ = ("_failures", "_openings", "_trial_until", "_until", "state")

    def __init__(self) -> None:
        self.state = CLOSED
        self._failures = 0  # in a row, with no answer in between
        self._openings = 0
        self._until = 0.0
        self._trial_until = 0.0  # 0: no trial is under way

    @property
    def admits(self) -> bool:
        """May it be sent a request now?"""
        return self.state == CLOSED or (self.state == HALF_OPEN and not self._trial_until)

    def failed(self, now: float, rules: HealthConfig, fatal: bool = False) -> bool:
        """A request failed; True when this opens the circuit. `fatal`: one is enough."""
        self._failures += rules.eject_after if fatal else 1
        if self.state == OPEN or (self.state == CLOSED and self._failures < rules.eject_after):
            return False
        pause = min(rules.eject_s * 2.0**self._openings, rules.eject_longest_s)
        self._openings = min(self._openings + 1, 20)
        self.state = OPEN
        self._until = now + pause
        self._trial_until = 0.0
        return True

    def answered(self) -> bool:
        """A request was served: what failed before is forgiven. True when this closes it."""
        self._failures = 0
        if self.state == CLOSED:
            self._openings = 0
            return False
        self.state = CLOSED
        self._trial_until = 0.0
        return True

    def sent(self, now: float) -> bool:
        """A request is sent; True when it is the trial, and nothing may follow it for now."""
        if self.state != HALF_OPEN or self._trial_until:
            return False
        self._trial_until = now + TRIAL_S
        return True

    def tick(self, now: float, idle: bool) -> bool:
        """True when a trial may be made from now on; `idle`: the worker has no request."""
        if self.state == OPEN and now >= self._until:
            self.state = HALF_OPEN
            return True
        if self._trial_until and (idle or now >= self._trial_until):
            self._trial_until = 0.0
            return True
        return False
