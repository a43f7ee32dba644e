"""Strategies as pure objects: picks, reasons and memory."""

from __future__ import annotations

import random
from typing import Any

import pytest
import xxhash

from routing.engine.policies import base, cost
from routing.engine.policies.base import Fleet, RequestFacts, RoutingPolicy
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.policies.prefixaware import PrefixAware
from routing.engine.policies.session import RoundRobin, SessionPolicy


def facts(
    chain: list[int] | None = None, tokens: int | None = None, session: bytes = b""
) -> RequestFacts:
    chain = chain or []
    return RequestFacts(chain, len(chain) * 64 if tokens is None else tokens, 64, session)


def targets(count: int) -> list[RoutingTarget]:
    return [RoutingTarget(f"w{index}", index) for index in range(count)]


class Play:
    """Picks in a row, as the router does them."""

    def __init__(self, policy: RoutingPolicy, workers: list[RoutingTarget]) -> None:
        self.policy = policy
        self.workers = workers
        self.picks = 0

    def send(self, what: RequestFacts, others: list[RoutingTarget] | None = None) -> base.Pick:
        others = others or []
        eligible = [worker for worker in self.workers if worker not in others]
        pick = self.policy.rank(what, Fleet(eligible, others))
        self.picks += 1
        worker: Any = pick.worker
        worker.last_pick = self.picks
        self.policy.sent(what, worker)
        return pick


# -- prefixaware


def test_prefix_returns_to_its_worker() -> None:
    play = Play(PrefixAware(1000), targets(4))
    first = play.send(facts([1, 2, 3]))
    assert first.reason == base.NO_MATCH
    again = play.send(facts([1, 2, 3, 4]))
    assert again.worker is first.worker
    assert (again.reason, again.cached_tokens) == (base.PREFIX_HIT, 192)
    assert [item[1] for item in again.candidates if item[0] == first.worker.id] == [192]


def test_longest_match_wins() -> None:
    policy = PrefixAware(1000)
    near, far = targets(2)
    policy.sent(facts([1, 2]), near)
    policy.sent(facts([1, 2, 3, 4]), far)
    assert policy.rank(facts([1, 2, 3, 4, 5]), Fleet([near, far])).worker is far


def test_new_prefixes_are_spread() -> None:
    workers = targets(4)
    play = Play(PrefixAware(1000), workers)
    chosen = [play.send(facts([xxhash.xxh3_64_intdigest(b"%d" % n)])).worker for n in range(400)]
    assert min(chosen.count(worker) for worker in workers) > 50


def test_ties_go_to_the_least_recently_picked_worker() -> None:
    for policy in (PrefixAware(1000), SessionPolicy(), RoundRobin()):
        workers = targets(4)
        for last_pick, worker in zip((7, 3, 5, 9), workers, strict=True):
            worker.last_pick = last_pick
        play = Play(policy, workers)
        play.picks = 10
        chosen = [play.send(facts(tokens=9)).worker.id for _ in range(8)]
        assert chosen == ["w1", "w2", "w0", "w3"] * 2


def test_burst_of_one_new_prefix_stays_together() -> None:
    play = Play(PrefixAware(1000), targets(4))
    assert len({play.send(facts([1, 2, 3])).worker.id for _ in range(5)}) == 1


def test_load_outweighs_a_match_once_waiting_costs_more_than_computing() -> None:
    policy = PrefixAware(1000)
    warm, cold = targets(2)
    policy.sent(facts([1, 2]), warm)
    saved = cost.cost(0, 128) - cost.cost(0, 0)
    warm.load = saved - 1
    assert policy.rank(facts([1, 2]), Fleet([warm, cold])).worker is warm
    warm.load = saved + cost.slack(128) + 1  # what costs hardly more is as good
    pick = policy.rank(facts([1, 2]), Fleet([warm, cold]))
    assert (pick.worker, pick.reason) == (cold, base.LEAST_LOADED)


def test_lost_match_is_named() -> None:
    policy = PrefixAware(1000)
    warm, cold = targets(2)
    policy.sent(facts([1]), warm)
    pick = policy.rank(facts([1]), Fleet([cold], [warm]))
    assert (pick.worker, pick.reason) == (cold, base.UNHEALTHY)
    assert [item[4] for item in pick.candidates] == [True, False]


def test_ranking_changes_nothing() -> None:
    policy = PrefixAware(1000)
    workers = targets(3)
    policy.sent(facts([1, 2]), workers[1])
    before = policy.sizes()
    for _ in range(3):
        policy.rank(facts([7, 8, 9]), Fleet(workers))
    assert policy.sizes() == before == {"w1": 2}


def test_removed_worker_leaves_nothing() -> None:
    policy = PrefixAware(1000)
    for index in range(10_000):
        worker = RoutingTarget(f"w{index}", 0)
        policy.sent(facts([1, 2]), worker)
        policy.forget(worker)
    assert policy.sizes() == {}


# -- session


def test_sessions_are_sticky_and_spread() -> None:
    workers = targets(4)
    play = Play(SessionPolicy(), workers)
    homes = {}
    for index in range(200):
        name = f"s{index}".encode()
        pick = play.send(facts(tokens=10, session=name))
        assert pick.reason == base.SESSION_STICKY
        homes[name] = pick.worker
    for name, home in homes.items():
        assert play.send(facts(tokens=10, session=name)).worker is home
    counts = [list(homes.values()).count(worker) for worker in workers]
    assert min(counts) > 25


def test_only_sessions_of_a_removed_worker_move() -> None:
    workers = targets(5)
    policy = SessionPolicy()
    names = [f"s{index}".encode() for index in range(200)]
    before = {name: policy.rank(facts(session=name), Fleet(workers)).worker for name in names}
    after = {name: policy.rank(facts(session=name), Fleet(workers[:4])).worker for name in names}
    moved = [name for name in names if before[name] is not after[name]]
    assert moved
    assert all(before[name] is workers[4] for name in moved)


def test_session_leaves_an_overloaded_worker_with_its_reason() -> None:
    workers = targets(2)
    policy = SessionPolicy()
    home: Any = policy.rank(facts(tokens=100, session=b"s"), Fleet(workers)).worker
    home.load = 200  # the mean is 100: within 1.25 * 100 + 100
    assert policy.rank(facts(tokens=100, session=b"s"), Fleet(workers)).worker is home
    home.load = 1000
    pick = policy.rank(facts(tokens=100, session=b"s"), Fleet(workers))
    assert pick.worker is not home
    assert pick.reason == base.LEAST_LOADED


def test_session_on_a_down_worker_is_counted() -> None:
    workers = targets(3)
    policy = SessionPolicy()
    home: Any = policy.rank(facts(session=b"s"), Fleet(workers)).worker
    rest = [worker for worker in workers if worker is not home]
    assert policy.rank(facts(session=b"s"), Fleet(rest, [home])).reason == base.UNHEALTHY


def test_least_loaded_worker_wins_without_a_session() -> None:
    workers = targets(3)
    workers[0].load = workers[2].load = 50
    pick = SessionPolicy().rank(facts(), Fleet(workers))
    assert (pick.worker, pick.reason) == (workers[1], base.NO_MATCH)


# -- roundrobin


def test_round_robin_ignores_load() -> None:
    workers = targets(3)
    workers[0].load = 10_000
    play = Play(RoundRobin(), workers)
    chosen = [play.send(facts(tokens=9)).worker.id for _ in range(6)]
    assert chosen == ["w0", "w1", "w2"] * 2


@pytest.mark.parametrize("policy", [PrefixAware(10), SessionPolicy(), RoundRobin()])
def test_every_reason_is_declared(policy: RoutingPolicy) -> None:
    rng = random.Random(1)
    workers = targets(3)
    play = Play(policy, workers)
    for _ in range(300):
        for worker in workers:
            worker.load = rng.choice([0, 0, 500])
        chain = [rng.randrange(4)]
        session = rng.choice([b"", b"a", b"b"])
        down = rng.sample(workers, rng.randrange(3))
        assert play.send(facts(chain, session=session), down).reason in policy.reasons
