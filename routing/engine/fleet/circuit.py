"""Circuit breaker of a worker, driven by request outcomes.

Open circuits pause with doubling length; then a single trial request decides. A trial without
outcome (client hang-up) allows the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from routing.engine.config import HealthConfig

CLOSED, OPEN, HALF_OPEN = range(3)
STATE_NAMES: Final = ("closed", "open", "half_open")
TRIAL_S: Final = 30.0  # a trial without outcome blocks others at most this long


@dataclass(slots=True, eq=False)
class Circuit:
    state: int = CLOSED
    _failures: int = 0
    _openings: int = 0
    _until: float = 0.0
    _trial_until: float = 0.0  # 0: no trial in flight

    @property
    def admits(self) -> bool:
        return self.state == CLOSED or (self.state == HALF_OPEN and not self._trial_until)

    def failed(self, now: float, rules: HealthConfig, fatal: bool = False) -> bool:
        """Record a failed request; return True if this opens the circuit. `fatal`: one failure is
        enough.
        """
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
        """Record a served request; return True if this closes the circuit."""
        self._failures = 0
        if self.state == CLOSED:
            self._openings = 0
            return False
        self.state = CLOSED
        self._trial_until = 0.0
        return True

    def sent(self, now: float) -> bool:
        """Record a sent request; return True if it is the trial, which blocks further ones."""
        if self.state != HALF_OPEN or self._trial_until:
            return False
        self._trial_until = now + TRIAL_S
        return True

    def tick(self, now: float, idle: bool) -> bool:
        """Return True if a trial is allowed from now on. `idle`: the worker has no in-flight
        request.
        """
        if self.state == OPEN and now >= self._until:
            self.state = HALF_OPEN
            return True
        if self._trial_until and (idle or now >= self._trial_until):
            self._trial_until = 0.0
            return True
        return False
