"""Result of a canary: statistics of all routers, intervals per measure and the verdict. Pure.

The verdict may be read at any time. The three measures share `ALPHA`, so that one of them is wrong
with at most that probability over the whole canary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from routing.analysis.sequential import MIN_SESSIONS, Interval, SampleSum, compare
from routing.engine.canary.statistics import MEASURES, bucket_bound

ALPHA = 0.05
ARMS = ("control", "candidate")
COLLECTING, WORSE, BETTER, NO_DIFFERENCE = "collecting", "worse", "better", "no_difference"


@dataclass(frozen=True, slots=True)
class ArmTotals:
    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sessions: int = 0
    ttft_buckets: Mapping[int, int] = field(default_factory=dict)
    sums: Mapping[str, SampleSum] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def error_rate(self) -> float | None:
        return self.errors / self.requests if self.requests else None

    def ttft(self, share: float) -> float | None:
        """Return a TTFT quantile in seconds, to 10 % accuracy; None: nothing measured."""
        rank = share * sum(self.ttft_buckets.values())
        passed = 0
        for bucket, count in sorted(self.ttft_buckets.items()):
            passed += count
            if passed >= rank:
                return bucket_bound(bucket)
        return None

    @property
    def p50(self) -> float | None:
        return self.ttft(0.5)

    @property
    def p90(self) -> float | None:
        return self.ttft(0.9)

    @property
    def p99(self) -> float | None:
        return self.ttft(0.99)

    def data(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "sessions": self.sessions,
            "errors": self.errors,
            "error_rate": self.error_rate,
            "hit_rate": self.hit_rate,
            "ttft_p50_s": self.p50,
            "ttft_p90_s": self.p90,
            "ttft_p99_s": self.p99,
        }


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """Result of a strategy canary. `intervals`: per measure, None before there are enough sessions.
    The difference of TTFT is that of its logarithm, those of `hit` and `errors` are in shares.
    """

    verdict: str
    message: str
    arms: Mapping[str, ArmTotals]
    intervals: Mapping[str, Interval | None]


def read_arms(data: Mapping[str, Any]) -> dict[str, ArmTotals]:
    """Parse one router's `arms`; raise KeyError, TypeError or ValueError for another version."""
    return {name: _read_arm(data[name]) for name in ARMS}


def _read_arm(data: Mapping[str, Any]) -> ArmTotals:
    sums = {name: SampleSum(*(float(value) for value in data["sums"][name])) for name in MEASURES}
    if not all(math.isfinite(part.squares + part.total) for part in sums.values()):
        raise ValueError("sums are not finite")
    return ArmTotals(
        requests=int(data["requests"]),
        errors=int(data["errors"]),
        prompt_tokens=int(data["prompt_tokens"]),
        cached_tokens=int(data["cached_tokens"]),
        sessions=int(data["sessions"]),
        ttft_buckets={int(bucket): int(count) for bucket, count in data["ttft_buckets"].items()},
        sums=sums,
    )


def add_arms(parts: Iterable[Mapping[str, ArmTotals]]) -> dict[str, ArmTotals]:
    """Add up what several routers, or several runs of one, report."""
    all_parts = list(parts)
    return {name: _add([part[name] for part in all_parts]) for name in ARMS}


def _add(parts: Sequence[ArmTotals]) -> ArmTotals:
    buckets: dict[int, int] = {}
    sums = dict.fromkeys(MEASURES, SampleSum())
    for part in parts:
        for bucket, count in part.ttft_buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        for name in MEASURES:
            sums[name] += part.sums[name]
    return ArmTotals(
        requests=sum(part.requests for part in parts),
        errors=sum(part.errors for part in parts),
        prompt_tokens=sum(part.prompt_tokens for part in parts),
        cached_tokens=sum(part.cached_tokens for part in parts),
        sessions=sum(part.sessions for part in parts),
        ttft_buckets=buckets,
        sums=sums,
    )


def judge(arms: Mapping[str, ArmTotals], routers: int = 1) -> CanaryResult:
    """`routers`: most routers at a time; a session may be counted once in each."""
    control, candidate = arms["control"], arms["candidate"]
    intervals: dict[str, Interval | None] = {}
    for name in MEASURES:
        none = SampleSum()
        intervals[name] = compare(
            control.sums.get(name, none),
            candidate.sums.get(name, none),
            ALPHA / len(MEASURES),
            overlap=max(routers, 1),
            floor=name == "errors",
        )
    verdict, message = _verdict(intervals)
    if verdict == COLLECTING:
        message = _progress(control, candidate, MIN_SESSIONS * max(routers, 1))
    return CanaryResult(verdict, message, arms, intervals)


def _verdict(intervals: Mapping[str, Interval | None]) -> tuple[str, str]:
    ttft, errors = intervals["ttft"], intervals["errors"]
    if errors is not None and errors.low > 0:
        return WORSE, f"Error rate higher by {_points(errors)}."
    if ttft is None or errors is None:
        return COLLECTING, ""
    if ttft.low > 0:
        return WORSE, f"TTFT higher by {_percent(ttft)}."
    if ttft.high < 0:
        return BETTER, f"TTFT lower by {_percent(ttft)}."
    largest = max(ttft.low, ttft.high, key=lambda value: abs(relative(value)))
    return NO_DIFFERENCE, f"No TTFT difference larger than {_rounded(largest)} so far."


def _progress(control: ArmTotals, candidate: ArmTotals, needed: int) -> str:
    """Return how many sessions are missing. Answers that are not streamed have no TTFT."""
    none = SampleSum()
    timed = [arm.sums.get("ttft", none).count for arm in (control, candidate)]
    text = (
        f"The comparison starts at {needed} ended sessions in each arm "
        f"(control {timed[0]:.0f}, candidate {timed[1]:.0f})."
    )
    if min(control.sessions, candidate.sessions) >= needed:
        text += " Only sessions with streamed answers count: others have no TTFT."
    return text


def relative(log_difference: float) -> float:
    """Return a difference of log TTFT as a relative change, capped for display."""
    return math.expm1(min(log_difference, 5.0))


def _rounded(log_difference: float) -> str:
    return f"{100 * abs(relative(log_difference)):.0f} %"


def _percent(ttft: Interval) -> str:
    near, far = sorted((ttft.low, ttft.high), key=lambda value: abs(relative(value)))
    return f"{_rounded(ttft.difference)} ({_rounded(near)} to {_rounded(far)})"


def _points(one: Interval) -> str:
    low, high = max(one.low, 0.0) * 100, min(one.high, 1.0) * 100
    return f"{one.difference * 100:.1f} points ({low:.1f} to {high:.1f})"
