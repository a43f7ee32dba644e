"""Two strategies on one fleet: each arm ranks by its own, both remember what was sent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from routing.engine.config import parse
from routing.engine.policies import build_policy
from routing.engine.policies.base import Fleet, RoutingPolicy
from routing.engine.policies.canary import CANDIDATE, CONTROL, CanaryPolicy, find_kvaware
from routing.engine.policies.kvaware import KvAware
from tests.routing.engine.policies.test_base import facts, targets

SECRET = b"s" * 32


def build(
    strategy: str, candidate: str = "", known: tuple[RoutingPolicy, ...] = (), **more: Any
) -> Any:
    config: dict[str, Any] = {"listen": "127.0.0.1:1", "strategy": strategy}
    if candidate:
        config["canary"] = {"id": "c", "strategy": candidate, **more}
    return build_policy(parse(config, Path()), SECRET, known)


@pytest.mark.parametrize(
    ("control", "candidate", "reasons"),
    [
        ("prefixaware", "session", ["prefix_hit", "session_sticky"]),
        ("session", "prefixaware", ["session_sticky", "prefix_hit"]),
        ("prefixaware", "kvaware", ["prefix_hit", "prefix_hit"]),
        ("kvaware", "roundrobin", ["prefix_hit", "round_robin"]),
    ],
)
def test_each_arm_ranks_by_its_strategy_with_the_prompts_of_both(
    control: str, candidate: str, reasons: list[str]
) -> None:
    policy = build(control, candidate)
    workers = targets(4)
    fleet = Fleet(workers)
    request = facts([1, 2, 3], session=b"abc")
    for arm in (CANDIDATE, CONTROL):
        request.arm = arm
        policy.sent(request, policy.rank(request, fleet).worker)
    found = []
    for arm in (CONTROL, CANDIDATE):
        request.arm = arm
        found.append(policy.rank(request, fleet).reason)
    assert found == reasons
    assert set(reasons) <= set(policy.reasons)


@pytest.mark.parametrize("arms", [("prefixaware", "session"), ("session", "prefixaware")])
def test_memories_learn_from_answers_of_either_arm(arms: tuple[str, str]) -> None:
    policy = build(*arms)
    worker = targets(1)[0]
    request = facts([1, 2, 3])
    policy.sent(request, worker)
    policy.forget(worker)
    policy.sent(facts([7]), worker)
    policy.ended(request, worker, 192, 0)
    assert policy.sizes()[worker.id] == 4


def test_strategies_with_equal_settings_share_one_memory() -> None:
    policy = build("prefixaware", "kvaware")
    worker = targets(1)[0]
    policy.set_capacity(worker.id, 6400)
    policy.sent(facts([1, 2, 3]), worker)
    control, candidate = policy.arms
    assert candidate.by_prefix is control
    assert control.sizes() == {"w0": 3}
    assert policy.memory("w0", 10) == control.memory("w0", 10) != []
    policy.forget(worker)
    assert control.sizes().get("w0", 0) == 0
    assert find_kvaware(policy) is candidate
    assert find_kvaware(control) is None


def test_other_settings_have_a_memory_of_their_own() -> None:
    policy = build("prefixaware", "prefixaware", prefix_memory_blocks=2)
    worker = targets(1)[0]
    policy.sent(facts([1, 2, 3, 4]), worker)
    assert [arm.sizes()["w0"] for arm in policy.arms] == [4, 2]


def test_start_and_promotion_keep_the_memory() -> None:
    before = build("prefixaware")
    before.sent(facts([1, 2]), targets(1)[0])
    canary = build("prefixaware", "kvaware", (before,))
    assert isinstance(canary, CanaryPolicy)
    assert canary.arms[CONTROL] is before
    promoted = build("kvaware", known=canary.arms)
    assert isinstance(promoted, KvAware)
    assert promoted is canary.arms[CANDIDATE]
    assert promoted.by_prefix.sizes() == {"w0": 2}
    assert build("prefixaware", known=canary.arms) is before


def test_large_fleets_rank_the_candidate_without_the_controls_order() -> None:
    """Round robin orders by turn: its least loaded worker is not the first."""
    policy = build("roundrobin", "prefixaware")
    workers = targets(3)
    for at, worker in enumerate(workers):
        worker.last_pick, worker.load = at, 1000 * (3 - at)
    by_turn: Any = SimpleNamespace(entries=[(0.0, 0, "", workers[0])])
    fleet = Fleet(workers, order=by_turn)
    request = facts(tokens=10)
    assert policy.rank(request, fleet).worker is workers[0]
    request.arm = CANDIDATE
    assert policy.rank(request, fleet).worker is workers[2]
