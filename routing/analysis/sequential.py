"""Comparison of two arms that may be read at any time: confidence sequences for mean differences.

I. Waudby-Smith, D. Arbour, R. Sinha, E. H. Kennedy, A. Ramdas: Time-uniform central limit theory
and asymptotic confidence sequences, Annals of Statistics 52 (2024); a normal
mixture as in S. R. Howard, A. Ramdas, J. McAuliffe, J. Sekhon: Time-uniform, nonparametric,
nonasymptotic confidence sequences, Annals of Statistics 49 (2021). The interval holds the true
difference at all times at once with probability 1 - alpha, so that stopping at any of them is
valid. It is asymptotic: none is given before `MIN_SESSIONS` of each arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_SESSIONS = 50
_TIGHT_AT = 500  # sessions of both arms at which the interval is tightest for its variance


@dataclass(frozen=True, slots=True)
class SampleSum:
    """Number, sum and sum of squares of independent values: session means."""

    count: float = 0
    total: float = 0.0
    squares: float = 0.0

    def __add__(self, other: SampleSum) -> SampleSum:
        return SampleSum(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        if self.count < 2:
            return 0.0
        return max(self.squares - self.count * self.mean**2, 0.0) / (self.count - 1)


@dataclass(frozen=True, slots=True)
class Interval:
    """Difference of means, candidate minus control, with its bounds."""

    difference: float
    low: float
    high: float


def critical_value(count: float, alpha: float) -> float:
    """Return the time-uniform counterpart of a normal quantile after `count` values."""
    tail = -2 * math.log(alpha)
    growth = count * (tail + math.log(tail + 1)) / _TIGHT_AT
    return math.sqrt((growth + 1) / growth * (math.log(growth + 1) - 2 * math.log(alpha)))


def compare(
    control: SampleSum, candidate: SampleSum, alpha: float, *, overlap: float = 1, floor: bool
) -> Interval | None:
    """Return the confidence sequence at this time; None: too few sessions.

    `overlap`: parts that one session may be counted in, one per router; the variance grows by it.
    `floor`: values are shares of rare events: count one more in each arm, since a variance of 0
    before the first one is no knowledge.
    """
    if min(control.count, candidate.count) < MIN_SESSIONS * overlap:
        return None
    variance = 0.0
    for arm in (control, candidate):
        arm_variance = arm.variance + (1 / arm.count if floor else 0.0)
        variance += arm_variance * overlap / arm.count
    width = math.sqrt(variance) * critical_value((control.count + candidate.count) / overlap, alpha)
    difference = candidate.mean - control.mean
    return Interval(difference, difference - width, difference + width)
