"""Samples of a run, its time series (bounded memory) and its result.

Failed requests are counted by reason and excluded from latencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BUCKETS = 240
MIN_SAMPLES = {50: 1, 90: 10, 99: 100}
_GROWTH = math.log(1.02)  # buckets of the ITL histogram are 2 % wide


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One request. `at`: due time in seconds from the start. All durations count from the due time,
    so that a late sender makes the endpoint look slower, never faster. `lag_s`: delay of the
    sending. None: not measured.
    """

    at: float
    session: int
    turn: int
    lag_s: float
    ttft_s: float | None
    duration_s: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    worker: str
    error: str
    counted: bool = True

    @property
    def ok(self) -> bool:
        return not self.error

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first."""
        if self.ttft_s is None or self.completion_tokens < 2:
            return None
        return (self.duration_s - self.ttft_s) / (self.completion_tokens - 1)


COLUMNS = tuple(RequestSample.__dataclass_fields__)


def as_row(sample: RequestSample) -> list[Any]:
    """Return values in the order of COLUMNS, rounded to microseconds."""
    values = (getattr(sample, name) for name in COLUMNS)
    return [round(value, 6) if isinstance(value, float) else value for value in values]


def from_row(row: Sequence[Any]) -> RequestSample:
    return RequestSample(*row)


class Histogram:
    """Histogram of durations with buckets 2 % wide: bounded size for any count."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0

    def add(self, seconds: float) -> None:
        index = math.ceil(math.log(max(seconds, 1e-6)) / _GROWTH)
        self.counts[index] = self.counts.get(index, 0) + 1
        self.total += 1

    def percentile(self, percent: int) -> float | None:
        if self.total < MIN_SAMPLES.get(percent, 1):
            return None
        rank, passed = max(1, math.ceil(self.total * percent / 100)), 0
        for index in sorted(self.counts):
            passed += self.counts[index]
            if passed >= rank:
                return math.exp(index * _GROWTH)
        return None


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Return the nearest-rank percentile of sorted values, always a measured value."""
    if len(ordered) < MIN_SAMPLES.get(percent, 1):
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def summarize_values(values: Iterable[float | None]) -> dict[str, float | int | None]:
    ordered = sorted(value for value in values if value is not None)
    mean = sum(ordered) / len(ordered) if ordered else None
    return {
        "count": len(ordered),
        "mean": _round(mean),
        "p50": _round(percentile(ordered, 50)),
        "p90": _round(percentile(ordered, 90)),
        "p99": _round(percentile(ordered, 99)),
        "max": _round(ordered[-1] if ordered else None),
    }


# Counts of a bucket, and the digits of their rates.
_COUNTS = {"sent": 3, "done": 3, "failed": 3, "prompt": 1, "completion": 1, "cached": 1}


@dataclass(slots=True)
class _Bucket:
    sent: int = 0
    done: int = 0
    failed: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    tiers: dict[str, float] = field(default_factory=dict)
    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)

    def add(self, later: _Bucket) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for tier, tokens in later.tiers.items():
            self.tiers[tier] = self.tiers.get(tier, 0.0) + tokens
        self.ttft += later.ttft
        self.tpot += later.tpot


class Series:
    """Time series of a run: one point per second, wider ones beyond BUCKETS points."""

    def __init__(self) -> None:
        self.width_s = 1.0
        self._buckets: list[_Bucket] = []

    def at(self, seconds: float) -> _Bucket:
        while (index := int(max(seconds, 0.0) / self.width_s)) >= BUCKETS:
            self._widen()
        while len(self._buckets) <= index:
            self._buckets.append(_Bucket())
        return self._buckets[index]

    def _widen(self) -> None:
        for bucket, other in zip(self._buckets[::2], self._buckets[1::2], strict=False):
            bucket.add(other)
        self._buckets = self._buckets[::2]
        self.width_s *= 2

    def ended(self, sample: RequestSample) -> None:
        bucket = self.at(sample.at + sample.duration_s)
        if not sample.ok:
            bucket.failed += 1
            return
        bucket.done += 1
        bucket.prompt += sample.prompt_tokens
        bucket.completion += sample.completion_tokens
        bucket.cached += sample.cached_tokens or 0
        if sample.ttft_s is not None:
            bucket.ttft.append(sample.ttft_s)
        if sample.tpot_s is not None:
            bucket.tpot.append(sample.tpot_s)

    def document(self) -> dict[str, Any]:
        """Return columns with one value per bucket; rates per second."""
        buckets, width = self._buckets, self.width_s
        tiers = sorted({tier for bucket in buckets for tier in bucket.tiers})
        return {
            "width_s": width,
            **{
                name: [round(getattr(bucket, name) / width, digits) for bucket in buckets]
                for name, digits in _COUNTS.items()
            },
            "ttft_p50": [_of(b.ttft, 50) for b in buckets],
            "ttft_p90": [_of(b.ttft, 90) for b in buckets],
            "tpot_p50": [_of(b.tpot, 50) for b in buckets],
            "tiers": {t: [round(b.tiers.get(t, 0.0) / width, 1) for b in buckets] for t in tiers},
        }


def result(samples: Sequence[RequestSample], gaps: Histogram, seconds: float) -> dict[str, Any]:
    """Return the result. `seconds`: from the first counted moment to the last response."""
    counted = [sample for sample in samples if sample.counted]
    good = [sample for sample in counted if sample.ok]
    prompt = sum(sample.prompt_tokens for sample in good)
    with_cache = [sample for sample in good if sample.cached_tokens is not None]
    cached = sum(sample.cached_tokens or 0 for sample in with_cache)
    prompt_tokens = sum(sample.prompt_tokens for sample in with_cache)
    completion = sum(sample.completion_tokens for sample in good)
    span = max(seconds, 1e-3)
    return {
        "requests": len(good),
        "failed": len(counted) - len(good),
        "not_counted": len(samples) - len(counted),
        "seconds": _round(seconds),
        "requests_s": _round(len(good) / span),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_s": _round(prompt / span),
        "completion_tokens_s": _round(completion / span),
        "cached_tokens": cached if with_cache else None,
        "cached_share": _round(cached / prompt_tokens) if prompt_tokens else None,
        "ttft": summarize_values(sample.ttft_s for sample in good),
        "tpot": summarize_values(sample.tpot_s for sample in good),
        "duration": summarize_values(sample.duration_s for sample in good),
        "itl": {f"p{p}": _round(gaps.percentile(p)) for p in MIN_SAMPLES},
        "lag": summarize_values(sample.lag_s for sample in counted),
        "workers": _by_worker(good),
    }


def _by_worker(good: Iterable[RequestSample]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for sample in good:
        name = sample.worker or "not named"
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _of(values: list[float], percent: int) -> float | None:
    """Return a percentile for charts, even from a single request."""
    ordered = sorted(values)
    if not ordered:
        return None
    return _round(ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)])


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
