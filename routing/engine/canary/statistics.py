"""Bounded statistics of the two arms of a canary: one value per session and measure.

The session is the unit of randomization, so its mean is one observation. It counts once, when the
session has ended, and does not change afterwards: a sequential test may then be read at any time
(analysis.sequential). Requests after that appear in the totals only.
"""

from __future__ import annotations

import math
from typing import Any

MAX_OPEN = 20_000  # sessions without an end, about 250 bytes each
MAX_ENDED = 50_000  # hashes of ended sessions
LONGEST_S = 600.0  # a longer session counts with its requests until then
# TTFT histogram: bounds of 1 ms to 1000 s, 10 % apart.
TTFT_RATIO = 1.1
TTFT_FIRST_S = 0.001
_BUCKETS = 147
_LOG_RATIO = math.log(TTFT_RATIO)
_LEAST_S = 1e-4
MEASURES = ("ttft", "hit", "errors")


class MeanSum:
    """Number, sum and sum of squares of session means."""

    __slots__ = ("count", "squares", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = self.squares = 0.0

    def add(self, mean: float) -> None:
        self.count += 1
        self.total += mean
        self.squares += mean * mean


class ArmStatistics:
    """Totals of one arm. `sums`: per measure, in the order of MEASURES: log TTFT in s, share of
    cached prompt tokens, share of failed requests.
    """

    def __init__(self) -> None:
        self.requests = self.errors = 0
        self.prompt_tokens = self.cached_tokens = 0
        self.ttft = [0] * _BUCKETS
        self.sums = tuple(MeanSum() for _ in MEASURES)

    def show(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "errors": self.errors,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "sessions": self.sums[2].count,
            "ttft_buckets": {str(index): count for index, count in enumerate(self.ttft) if count},
            "sums": {
                name: [sums.count, sums.total, sums.squares]
                for name, sums in zip(MEASURES, self.sums, strict=True)
            },
        }


class OpenSession:
    __slots__ = ("arm", "cached", "errors", "first", "last", "logs", "prompt", "requests", "timed")

    def __init__(self, arm: int, now: float) -> None:
        self.arm = arm
        self.first = self.last = now
        self.requests = self.errors = self.timed = self.prompt = self.cached = 0
        self.logs = 0.0


class CanaryStatistics:
    """Statistics of one router. Times are of one monotonic clock, in seconds."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self.arms = (ArmStatistics(), ArmStatistics())
        self.unassigned = 0  # requests without a session
        self._open: dict[int, OpenSession] = {}  # least recently used first
        self._ended: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self,
        unit: int,
        arm: int,
        now: float,
        ttft_s: float | None,
        prompt: int,
        cached: int | None,
        failed: bool,
    ) -> None:
        """Count one request of session `unit`. `cached` None: not reported."""
        totals = self.arms[arm]
        totals.requests += 1
        totals.errors += failed
        session = self._open.pop(unit, None)
        if session is None and unit not in self._ended:
            session = OpenSession(arm, now)
        log = 0.0
        if ttft_s is not None and not failed:
            log = math.log(max(ttft_s, _LEAST_S))
            totals.ttft[_bucket(log)] += 1
        if cached is not None:
            totals.prompt_tokens += prompt
            totals.cached_tokens += min(cached, prompt)
        if session is None:
            self.settle(now)
            return
        session.last = now
        session.requests += 1
        session.errors += failed
        if ttft_s is not None and not failed:
            session.timed += 1
            session.logs += log
        if cached is not None:
            session.prompt += prompt
            session.cached += min(cached, prompt)
        self._open[unit] = session
        if now - session.first >= LONGEST_S:
            self._end(unit)
        self.settle(now)

    def settle(self, now: float) -> None:
        """Count the sessions that have ended, and the oldest of too many."""
        while self._open:
            unit, session = next(iter(self._open.items()))
            if now - session.last < self._settle_s and len(self._open) <= MAX_OPEN:
                return
            self._end(unit)

    def _end(self, unit: int) -> None:
        session = self._open.pop(unit)
        ttft, hit, errors = self.arms[session.arm].sums
        if session.timed:
            ttft.add(session.logs / session.timed)
        if session.prompt:
            hit.add(session.cached / session.prompt)
        errors.add(session.errors / session.requests)
        self._ended[unit] = None
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def show(self, now: float) -> dict[str, Any]:
        self.settle(now)
        return {
            "open_sessions": len(self._open),
            "unassigned_requests": self.unassigned,
            "arms": {
                name: arm.show()
                for name, arm in zip(("control", "candidate"), self.arms, strict=True)
            },
        }


def _bucket(log_ttft: float) -> int:
    bucket = math.ceil((log_ttft - math.log(TTFT_FIRST_S)) / _LOG_RATIO)
    return min(max(bucket, 0), _BUCKETS - 1)


def bucket_bound(at: int) -> float:
    """Return the upper bound of a histogram bucket, in seconds."""
    return float(TTFT_FIRST_S * TTFT_RATIO**at)
