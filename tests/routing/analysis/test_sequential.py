"""False alarms and power of the sequential test, by simulation with fixed seeds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from routing.analysis import sequential
from routing.analysis.sequential import SampleSum, compare

ALPHA = 0.05
RUNS = 100
SESSIONS = 700
Draw = Callable[[random.Random], float]


def first_alarm(
    seed: int, control: Draw, candidate: Draw, share: float, floor: bool = False
) -> int | None:
    """The session after which the interval first excludes 0, evaluated after each session."""
    chance = random.Random(seed)
    sums = [[0, 0.0, 0.0], [0, 0.0, 0.0]]
    for count in range(1, SESSIONS + 1):
        arm = chance.random() < share
        value = (candidate if arm else control)(chance)
        row = sums[arm]
        row[0] += 1
        row[1] += value
        row[2] += value * value
        found = compare(SampleSum(*sums[0]), SampleSum(*sums[1]), ALPHA, floor=floor)
        if found is not None and (found.low > 0 or found.high < 0):
            return count
    return None


def log_ttft(chance: random.Random) -> float:
    """Skewed: mostly hits, some long prefills."""
    return chance.gauss(-2.0, 0.4) if chance.random() < 0.7 else chance.gauss(0.5, 0.8)


def rare_error(chance: random.Random) -> float:
    return float(chance.random() < 0.005)


def false_alarms(draw: Draw, share: float, floor: bool, runs: int = RUNS) -> float:
    return (
        sum(first_alarm(seed, draw, draw, share, floor) is not None for seed in range(runs)) / runs
    )


@pytest.mark.parametrize(
    ("draw", "share", "floor"),
    [(log_ttft, 0.5, False), (log_ttft, 0.1, False), (rare_error, 0.2, True)],
)
def test_peeks_after_each_session_raise_few_false_alarms(
    draw: Draw, share: float, floor: bool
) -> None:
    assert false_alarms(draw, share, floor) <= ALPHA


def test_a_fixed_time_interval_would_raise_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequential, "critical_value", lambda _count, _alpha: 1.96)
    assert false_alarms(log_ttft, 0.5, False, 60) > 3 * ALPHA


def test_a_real_effect_is_found() -> None:
    def slower(chance: random.Random) -> float:
        return log_ttft(chance) + 0.5

    found = [first_alarm(seed, log_ttft, slower, 0.5) for seed in range(40)]
    assert sum(at is not None for at in found) >= 30


def test_no_interval_before_each_arm_has_sessions() -> None:
    few, many = SampleSum(49, 49.0, 60.0), SampleSum(5000, 0.0, 5000.0)
    assert compare(many, few, ALPHA, floor=False) is None
    assert compare(few, many, ALPHA, floor=False) is None


def test_parts_of_sessions_at_several_routers_widen_the_interval() -> None:
    arm = SampleSum(1000, 0.0, 1000.0)
    one = compare(arm, arm, ALPHA, floor=False)
    two = compare(arm, arm, ALPHA, overlap=2, floor=False)
    assert one is not None and two is not None
    assert two.high > 1.3 * one.high


def test_no_error_yet_is_no_proof_of_none() -> None:
    arm = SampleSum(200, 0.0, 0.0)
    found = compare(arm, arm, ALPHA, floor=True)
    assert found is not None
    assert 0.01 < found.high < 0.5
