"""Statistical comparison of two runs.

Confidence intervals come from resampling whole conversations (requests of one are not independent).
No claim if the interval includes "no change", with too few requests, or with different workloads.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.benchmarks.generator.samples import MIN_SAMPLES, RequestSample, percentile

RESAMPLES = 300
INTERVAL = 0.95
# More would change the interval by less than its own uncertainty.
_MAX_SAMPLES = 4000
_MIN_SAMPLES = 30  # requests, and conversations, per run
# Weights of a conversation in a resample (Poisson with mean 1).
_RESAMPLE_WEIGHTS = (0,) * 368 + (1,) * 368 + (2,) * 184 + (3,) * 61 + (4,) * 15 + (5,) * 4
_MEASURES = (
    ("ttft_s", "TTFT", (50, 90, 99)),
    ("tpot_s", "TPOT", (50, 90)),
    ("duration_s", "E2E latency", (50, 90)),
)


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One compared figure of two runs. `change`, `low`, `high`: B / A - 1. None: not measured, or
    too few samples.
    """

    label: str
    a: float | None
    b: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def sure(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def better(self) -> bool:
        """Lower is better for all compared metrics."""
        return self.sure and (self.change or 0) < 0


@dataclass(frozen=True, slots=True)
class Comparison:
    rows: tuple[ComparisonRow, ...]
    headline: str
    words: str
    caveats: tuple[str, ...]
    confident: bool

    @property
    def verdict(self) -> str:
        return f"{self.headline} {self.words}".strip()


def compare(
    a: Sequence[RequestSample], b: Sequence[RequestSample], caveats: Sequence[str] = ()
) -> Comparison:
    """`caveats`: known reasons that limit the comparison."""
    first, second = _good(a), _good(b)
    rows: list[ComparisonRow] = []
    for name, label, percents in _MEASURES:
        rows += _measure(label, _values(first, name), _values(second, name), percents)
    warnings = [*caveats, *_too_few(first, "A"), *_too_few(second, "B")]
    confident = not warnings
    return Comparison(tuple(rows), *_verdict(rows, confident), tuple(warnings), confident)


def list_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' ')}: {a.get(name)} in A, {b.get(name)} in B"
        for name in sorted({*a, *b})
        if name != "nonce" and a.get(name) != b.get(name)
    ]


def cumulative_curve(samples: Sequence[RequestSample]) -> list[tuple[float, float]]:
    ordered = [value for value, _ in _values(_good(samples), "ttft_s")]
    if not ordered:
        return []
    marks = sorted({round(len(ordered) * percent / 100) for percent in range(1, 100)} | {1})
    points = [(ordered[mark - 1], mark / len(ordered)) for mark in marks if mark >= 1]
    return [*points, (ordered[-1], 1.0)]


def _good(samples: Sequence[RequestSample]) -> list[RequestSample]:
    return [sample for sample in samples if sample.counted and sample.ok][:_MAX_SAMPLES]


def _values(samples: Sequence[RequestSample], name: str) -> list[tuple[float, int]]:
    pairs = ((getattr(sample, name), sample.session) for sample in samples)
    return sorted((value, session) for value, session in pairs if value is not None)


def _too_few(samples: Sequence[RequestSample], which: str) -> list[str]:
    talks = len({sample.session for sample in samples})
    for count, what in ((len(samples), "responses"), (talks, "conversations")):
        if count < _MIN_SAMPLES:
            text = f"at least {_MIN_SAMPLES} are required."
            return [f"{which} has {count} {what}; {text}"]
    return []


def _measure(
    label: str, a: list[tuple[float, int]], b: list[tuple[float, int]], percents: tuple[int, ...]
) -> list[ComparisonRow]:
    rows: list[ComparisonRow] = []
    drawn_a, drawn_b = _resample(a, percents, 1), _resample(b, percents, 2)
    for index, percent in enumerate(percents):
        of_a = percentile([value for value, _ in a], percent)
        of_b = percentile([value for value, _ in b], percent)
        name = f"{label} p{percent}"
        if not of_a or of_b is None or not drawn_a or not drawn_b:
            rows.append(ComparisonRow(name, of_a, of_b))
            continue
        changes = sorted(
            two[index] / drawn[index] - 1
            for drawn, two in zip(drawn_a, drawn_b, strict=True)
            if drawn[index]
        )
        edge = (1 - INTERVAL) / 2
        low, high = changes[int(edge * len(changes))], changes[int((1 - edge) * len(changes)) - 1]
        rows.append(ComparisonRow(name, of_a, of_b, of_b / of_a - 1, low, high))
    return rows


def _resample(
    values: list[tuple[float, int]], percents: tuple[int, ...], seed: int
) -> list[list[float]]:
    if len(values) < MIN_SAMPLES[90]:
        return []
    names = {session: index for index, session in enumerate({s for _, s in values})}
    owners = [names[session] for _, session in values]
    chance = random.Random(seed)
    resampled: list[list[float]] = []
    while len(resampled) < RESAMPLES:
        weights = chance.choices(_RESAMPLE_WEIGHTS, k=len(names))
        reached = list(itertools.accumulate(map(weights.__getitem__, owners)))
        if not reached[-1]:
            continue
        resampled.append(
            [
                values[bisect.bisect_left(reached, reached[-1] * percent / 100)][0]
                for percent in percents
            ]
        )
    return resampled


def _verdict(rows: Sequence[ComparisonRow], confident: bool) -> tuple[str, str]:
    main = [row for row in rows if row.label.startswith("TTFT") and row.change is not None]
    if not main:
        return "No verdict.", "Too few TTFT samples."
    median = main[0]
    tail = next((row for row in main if row.label.endswith("p90")), median)
    words = (
        f"TTFT, A to B: p50 {_ms(median.a)} to {_ms(median.b)} ({_interval(median)}), "
        f"p90 {_ms(tail.a)} to {_ms(tail.b)} ({_interval(tail)})."
    )
    if not confident:
        return "No verdict. See the caveats below.", words
    sure = [row for row in (median, tail) if row.sure]
    if not sure:
        return "No significant difference.", words
    if all(row.better for row in sure):
        return "B is faster.", words
    if not any(row.better for row in sure):
        return "A is faster.", words
    return "Mixed result: neither is faster at both p50 and p90.", words


def _interval(row: ComparisonRow) -> str:
    if row.change is None or row.low is None or row.high is None:
        return "too few to say"
    ends = f"{_signed(row.low)} to {_signed(row.high)}"
    return f"{_signed(row.change)} %, 95 % interval {ends} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.0f}".replace("-", "−")


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
