"""Order of arrivals: at recorded times, or when the answers before them have ended."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedRequest:
    """One request: arrival time, names of its prompt's whole blocks, and lengths in tokens.

    `after`: numbers of earlier requests; `at` counts from the last end among them. `reported`:
    cached tokens as measured; -1: unknown. `strategy`: that placed it, "" if unknown.
    `answer_chain`: names of the whole blocks that the answer fills after `chain`, as far as known.
    """

    at: float
    chain: Sequence[int]
    prompt_tokens: int
    answer_tokens: int
    session: int  # conversation or document; -1: unknown
    after: tuple[int, ...] = ()
    reported: int = -1
    strategy: str = ""
    answer_chain: Sequence[int] = ()


class Arrivals:
    """Requests by number, each when it is due."""

    def __init__(self, requests: Sequence[PlannedRequest]) -> None:
        self._requests = requests
        self._due: list[tuple[float, int]] = []
        self._open: dict[int, int] = {}  # missing ends
        self._next: dict[int, list[int]] = {}
        for number, planned in enumerate(requests):
            if planned.after:
                self._open[number] = len(planned.after)
                for before in planned.after:
                    self._next.setdefault(before, []).append(number)
            else:
                self._due.append((planned.at, number))
        heapq.heapify(self._due)

    @property
    def next_at(self) -> float:
        """Return the time of the next arrival; infinite: none is due."""
        return self._due[0][0] if self._due else math.inf

    def take(self) -> tuple[float, int]:
        return heapq.heappop(self._due)

    def ended(self, number: int, now: float) -> None:
        for after in self._next.pop(number, ()):
            self._open[after] -= 1
            if not self._open[after]:
                heapq.heappush(self._due, (now + self._requests[after].at, after))
