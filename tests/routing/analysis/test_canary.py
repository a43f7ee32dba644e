"""Sums over routers, quantiles and verdicts of a canary."""

from __future__ import annotations

import random
from typing import Any

import pytest

from routing.analysis import canary
from routing.analysis.canary import add_arms, judge, read_arms
from routing.engine.canary.statistics import CanaryStatistics


def report(
    seed: int = 1, slower: float = 1.0, failing: float = 0.0, sessions: int = 1000
) -> dict[str, Any]:
    """What a router reports after this many sessions of two requests."""
    chance = random.Random(seed)
    statistics = CanaryStatistics(1.0)
    for unit in range(1, sessions + 1):
        arm = unit % 2
        for _ in range(2):
            failed = bool(arm) and chance.random() < failing
            ttft = chance.lognormvariate(-2.0, 0.5) * (slower if arm else 1.0)
            statistics.add(unit, arm, float(unit), ttft, 100, 80, failed)
    shown: dict[str, Any] = statistics.show(1e6)["arms"]
    return shown


@pytest.mark.parametrize(
    ("facts", "verdict", "message"),
    [
        ({}, canary.NO_DIFFERENCE, "No TTFT difference larger than"),
        ({"slower": 1.5}, canary.WORSE, "TTFT higher by"),
        ({"slower": 0.6}, canary.BETTER, "TTFT lower by"),
        ({"slower": 0.6, "failing": 0.3}, canary.WORSE, "Error rate higher by"),
        ({"sessions": 80}, canary.COLLECTING, "The comparison starts at 50 ended sessions"),
        ({"sessions": 0}, canary.COLLECTING, "The comparison starts at 50 ended sessions"),
    ],
)
def test_verdict(facts: dict[str, Any], verdict: str, message: str) -> None:
    found = judge(read_arms(report(**facts)))
    assert (found.verdict, found.message.startswith(message)) == (verdict, True), found.message


def test_missing_sessions_are_counted_and_answers_without_ttft_named() -> None:
    few = judge(read_arms(report(sessions=81)), routers=2).message
    assert few.endswith("at 100 ended sessions in each arm (control 40, candidate 41).")
    statistics = CanaryStatistics(1.0)
    for unit in range(1, 201):
        statistics.add(unit, unit % 2, float(unit), None, 100, 80, False)
    plain = judge(read_arms(statistics.show(1e6)["arms"]))
    assert plain.verdict == canary.COLLECTING
    assert "(control 0, candidate 0). Only sessions with streamed answers count" in plain.message


def test_reports_of_several_routers_add_up() -> None:
    one, two = read_arms(report(1)), read_arms(report(2))
    total = add_arms([one, two])["control"]
    assert total.requests == 2000
    assert total.sessions == 1000
    assert total.sums["ttft"].count == 1000
    assert total.hit_rate == pytest.approx(0.8)


def test_quantiles_are_within_a_tenth() -> None:
    statistics = CanaryStatistics(1.0)
    for unit in range(1, 1001):
        statistics.add(unit, 0, 0.0, unit / 1000, 10, None, failed=False)
    arm = read_arms(statistics.show(0.0)["arms"])["control"]
    for share in (0.5, 0.9, 0.99):
        found = arm.ttft(share)
        assert found is not None and share <= found <= 1.1 * share + 0.001
    assert arm.hit_rate is None


def test_a_report_of_another_version_is_rejected() -> None:
    broken = report(sessions=10)
    broken["control"]["sums"]["ttft"] = [1, float("nan"), 2]
    with pytest.raises(ValueError, match="finite"):
        read_arms(broken)
