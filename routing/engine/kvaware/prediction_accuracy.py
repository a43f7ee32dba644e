"""Compare predicted with reported cached tokens per worker.

A worker whose index overpredicts persistently is not used for matches until its index is rebuilt.
Single outliers (a block evicted between choice and step) have no effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LEARN = 0.2
_MIN_SAMPLES = 5  # samples before a verdict
MAX_MISSING_SHARE = 0.5  # threshold of the missing share of predicted tokens
MAX_UNPREDICTED_SHARE = 0.5  # threshold of the unpredicted share of reported tokens
MAX_STRIKES = 1
AGREED_SHARE = 0.25  # unpredicted share below which predictions agree again
_AGREED_SAMPLES = 10


@dataclass(slots=True)
class PredictionAccuracy:
    """Accuracy of predicted cached tokens. `over`: share of predicted tokens missing; `under`:
    share of reported tokens not predicted (EWMAs). `lying`: not used until `renewed`. `doubted`:
    rebuilding has not helped, since the worker caches other tokens than are predicted; not used
    until predictions agree again.
    """

    answers: int = 0
    over: float = 0.0
    under: float = 0.0
    lying: bool = False
    doubted: bool = False
    demotions: int = 0
    strikes: int = 0  # demotions for unpredicted tokens since predictions last agreed

    def observe(self, predicted: int, reported: int, block: int) -> bool:
        """Add a sample; return True if the worker's index must be rebuilt.

        `block`: tolerance in tokens, since the last block is always computed.
        """
        over = under = 0.0
        if predicted > block:
            over = max(predicted - reported - block, 0) / predicted
        if reported > block:
            under = max(reported - predicted - block, 0) / reported
        self.answers += 1
        if predicted > block:
            self.over += _LEARN * (over - self.over)
        if reported > block or predicted > block:
            self.under += _LEARN * (under - self.under)
        if self.answers < _MIN_SAMPLES or self.lying:
            return False
        if self.over > MAX_MISSING_SHARE:
            self.lying = True
            self.demotions += 1
            return True
        if self.under > MAX_UNPREDICTED_SHARE:
            self.demotions += 1
            self.strikes += 1
            self.doubted = self.doubted or self.strikes > MAX_STRIKES
            self.renewed()
            return not self.doubted
        if self.answers >= _AGREED_SAMPLES and self.under < AGREED_SHARE:
            self.strikes = 0
            self.doubted = False
        return False

    def renewed(self) -> None:
        self.answers = 0
        self.over = self.under = 0.0
        self.lying = False


WINDOW_S = 300.0
STEP_S = 10.0  # between two marks


class CounterWindow:
    """Counter snapshots over a sliding window; all counters are 0 before `now`."""

    def __init__(self, now: float) -> None:
        nothing: dict[str, int] = {}
        self._marks = deque([(now, 0, nothing)])

    def mark(self, now: float, found: int, fallbacks: Mapping[str, int]) -> None:
        """`found`: requests with known blocks; `fallbacks`: others by reason (cumulative)."""
        marks = self._marks
        if now < marks[-1][0] + STEP_S:
            return
        marks.append((now, found, dict(fallbacks)))
        while len(marks) > 1 and marks[1][0] <= now - WINDOW_S:
            marks.popleft()

    def show(self, now: float, found: int, fallbacks: Mapping[str, int]) -> dict[str, Any]:
        begun, before, known_tokens = self._marks[0]
        since = {reason: count - known_tokens.get(reason, 0) for reason, count in fallbacks.items()}
        return {
            "window_s": round(now - begun, 1),
            "requests": found - before + sum(since.values()),
            "fallbacks": {reason: count for reason, count in since.items() if count},
        }
