"""Is what the index says of a worker true? Predicted against reported cached tokens.

Promises that a worker whose index keeps promising what its engine then does not have is believed
no more until the index has been built anew, and that one odd answer (a block evicted between the
choice and the step) condemns nobody. Pure; must not know requests or events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LEARN = 0.2
_FEWEST = 5  # answers before a verdict
LYING = 0.5  # of what is promised, so much is missing on average
MISSING = 0.5  # of what is reported, so much was not foreseen on average


@dataclass(slots=True)
class Meter:
    """`over`: share of the promised tokens which were missing; `under`: share of the reported
    ones which were not foreseen; both slow averages. `lying`: not believed until `renewed`."""

    answers: int = 0
    over: float = 0.0
    under: float = 0.0
    lying: bool = False
    demotions: int = 0

    def observe(self, predicted: int, reported: int, block: int) -> bool:
        """An answer's word; True when the index of this worker must be built anew.

        `block`: tokens by which both may differ, since the last block is always computed.
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
        if self.answers < _FEWEST or self.lying:
            return False
        if self.over > LYING:
            self.lying = True
            self.demotions += 1
            return True
        if self.under > MISSING:
            self.demotions += 1
            self.renewed()
            return True
        return False

    def renewed(self) -> None:
        """The index was built anew: it is believed again, and judged afresh."""
        self.answers = 0
        self.over = self.under = 0.0
        self.lying = False


WINDOW_S = 300.0
STEP_S = 10.0  # between two marks


class Window:
    """Marks of the counters, so old as the window is long and no older. Before `now` nothing was
    counted."""

    def __init__(self, now: float) -> None:
        nothing: dict[str, int] = {}
        self._marks = deque([(now, 0, nothing)])

    def mark(self, now: float, found: int, fallbacks: Mapping[str, int]) -> None:
        """`found`: requests so far whose blocks were known; `fallbacks`: the others by reason."""
        marks = self._marks
        if now < marks[-1][0] + STEP_S:
            return
        marks.append((now, found, dict(fallbacks)))
        while len(marks) > 1 and marks[1][0] <= now - WINDOW_S:
            marks.popleft()

    def show(self, now: float, found: int, fallbacks: Mapping[str, int]) -> dict[str, Any]:
        """What has been counted since the oldest mark."""
        begun, before, known = self._marks[0]
        since = {reason: count - known.get(reason, 0) for reason, count in fallbacks.items()}
        return {
            "window_s": round(now - begun, 1),
            "requests": found - before + sum(since.values()),
            "fallbacks": {reason: count for reason, count in since.items() if count},
        }
