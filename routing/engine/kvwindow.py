"""How many of the latest requests kvaware placed without their blocks.

Counters since the start say what was; whether something is wrong now is said by the last minutes.
Promises a bounded memory and an answer at any time. Pure; must not know requests or the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

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
