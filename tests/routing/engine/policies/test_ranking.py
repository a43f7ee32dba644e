"""Ranking of large fleets compared with full ranking; agreement of routers; ring; records."""

from __future__ import annotations

import random
from math import inf
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.config import parse
from routing.engine.fleet.load import (
    RequestCharge,
    WorkersByLoad,
    bucket_minimum,
    load_bucket,
    update_load,
)
from routing.engine.fleet.workers import SMALL_FLEET, Worker, WorkerTable
from routing.engine.policies import base, cost, ranking
from routing.engine.policies.base import MAX_CANDIDATES, Fleet, RequestFacts, RoutingPolicy
from routing.engine.policies.load_order import HashRing
from routing.engine.policies.prefixaware import PrefixAware
from routing.engine.policies.session import RoundRobin, SessionPolicy
from tests.routing.engine.harness import Client, admin, chat, post, router
from tests.support.fake_worker import FakeWorker

BLOCK = 64


def newcomer(name: str) -> Worker:
    workers = [{"id": name, "url": "http://127.0.0.1:8000"}]
    worker = Worker(parse({"listen": "127.0.0.1:0", "workers": workers}, Path()).workers[0])
    worker.up = True
    return worker


def table(count: int, by_turn: bool = False) -> WorkerTable:
    found = WorkerTable(lambda _worker, _what: None)
    found.by_turn = by_turn
    for number in range(count):
        found.add(newcomer(f"w{number}"))
    found.refresh()
    return found


def load(worker: Worker, tokens: int) -> None:
    worker.backlog = tokens
    update_load(worker)


def facts(chain: list[int], more: int = 0, session: bytes = b"") -> RequestFacts:
    return RequestFacts(chain, len(chain) * BLOCK + more, BLOCK, session)


def blocks(seed: Any, count: int) -> list[int]:
    return [xxhash.xxh3_64_intdigest(f"{seed}/{at}".encode()) for at in range(count)]


class Sends:
    """One router's policy and accounting, without sockets."""

    def __init__(self, policy: RoutingPolicy, count: int) -> None:
        self.policy = policy
        self.table = table(count, policy.by_turn)
        self.picks = 0

    def send(self, what: RequestFacts) -> base.Pick:
        pick = self.policy.rank(what, self.table.fleet)
        worker = self.table.workers[pick.worker.id]
        self.picks += 1
        worker.last_pick = self.picks
        self.policy.sent(what, worker)
        update_load(worker)
        return pick


# -- many workers

loads = st.lists(st.integers(0, 3000), min_size=SMALL_FLEET + 1, max_size=40)


@given(loads, st.data())
@settings(max_examples=200)
def test_sampled_pick_equals_the_full_comparison(given: list[int], data: Any) -> None:
    known = table(len(given))
    workers = list(known.workers.values())
    for worker, tokens in zip(workers, given, strict=True):
        worker.last_pick = tokens * 7 % 11
        load(worker, tokens)
    chain = blocks("p", 20)
    ids = st.sampled_from([worker.id for worker in workers])
    depths = data.draw(st.dictionaries(ids, st.integers(1, 20), max_size=len(given)))
    policy = PrefixAware(1000)
    for worker_id, depth in depths.items():
        policy.sent(facts(chain[:depth]), known.workers[worker_id])
    matched = {worker_id: depth * BLOCK for worker_id, depth in depths.items()}
    prompt = RequestFacts(chain, 20 * BLOCK, BLOCK, b"")

    def price(worker: Any) -> float:
        return cost.cost(worker.load, prompt.tokens - matched.get(worker.id, 0))

    few = Fleet(known.eligible)
    assert known.fleet.order is not None
    assert few.order is None
    least = min(price(worker) for worker in workers)
    picks = [
        policy.rank(prompt, known.fleet),
        ranking.rank(prompt, known.fleet, matched, base.KV_HIT, MAX_CANDIDATES),
        policy.rank(prompt, few, shown=len(few)),
    ]
    for pick in picks:
        # Loads within an eighth are taken for the same; and what costs hardly more may be chosen.
        near = least + pick.worker.load / 8 + cost.slack(prompt.tokens)
        assert least <= price(pick.worker) <= near
        assert pick.cached_tokens == matched.get(pick.worker.id, 0)
        assert {item[0]: item[1] for item in pick.candidates}[pick.worker.id] == pick.cached_tokens
        hits = (base.PREFIX_HIT, base.KV_HIT)
        expected = hits if pick.cached_tokens else (base.LEAST_LOADED if depths else base.NO_MATCH,)
        assert pick.reason in expected


def test_least_loaded_of_many_holders_is_found() -> None:
    """Walking from the least loaded up would pass all idle workers first."""
    sends = Sends(PrefixAware(1000), 200)
    workers = list(sends.table.workers.values())
    system = blocks("system", 30)
    for number, worker in enumerate(workers[:100]):
        sends.policy.sent(facts(system), worker)
        load(worker, 500 + 40 * ((number * 37) % 100))
    pick = sends.policy.rank(facts(system), sends.table.fleet)
    assert pick.cached_tokens == 30 * BLOCK
    assert pick.worker.load == min(worker.load for worker in workers[:100])


def test_worker_too_busy_for_its_match_is_skipped() -> None:
    sends = Sends(PrefixAware(1000), 100)
    holder = sends.table.workers["w7"]
    chain = blocks("x", 4)
    sends.policy.sent(facts(chain), holder)
    assert sends.policy.rank(facts(chain), sends.table.fleet).worker is holder
    load(holder, 100_000)
    pick = sends.policy.rank(facts(chain), sends.table.fleet)
    assert pick.worker is not holder
    assert (pick.reason, pick.cached_tokens) == (base.LEAST_LOADED, 0)


@pytest.mark.parametrize("count", [6, 50])
def test_holders_of_one_prompt_alternate(count: int) -> None:
    sends = Sends(PrefixAware(1000), count)
    prompt = facts(blocks("x", 4))
    for name in ("w5", "w2", "w3"):
        sends.policy.sent(prompt, sends.table.workers[name])
    rounds = [[sends.send(prompt).worker.id for _ in range(3)] for _ in range(3)]
    assert sorted(rounds[0]) == ["w2", "w3", "w5"]
    assert rounds[0] == rounds[1] == rounds[2]


@pytest.mark.parametrize("count", [4, 60])
def test_hashing_loses_no_match(count: int) -> None:
    sends = Sends(PrefixAware(1000), count)
    holder = sends.table.workers["w1"]
    system = blocks("system", 1)
    sends.policy.sent(facts(system), holder)
    for number in range(20):
        prompt = facts(system + blocks(number, 300))
        assert cost.slack(prompt.tokens) > cost.cost(0, BLOCK), "hashing would be asked"
        assert sends.policy.rank(prompt, sends.table.fleet).worker is holder


def test_worker_in_a_reused_slot_has_its_own_memory() -> None:
    known = table(2)
    policy = PrefixAware(100)
    prompt = facts(blocks("x", 4))
    gone = known.workers["w0"]
    policy.sent(prompt, gone)
    policy.rank(prompt, known.fleet)
    known.remove("w0")
    policy.forget(gone)
    fresh = newcomer("fresh")
    known.add(fresh)
    known.refresh()
    assert fresh.slot == gone.slot
    assert policy.rank(prompt, known.fleet).cached_tokens == 0
    policy.sent(prompt, fresh)
    pick = policy.rank(prompt, known.fleet)
    assert (pick.worker, pick.cached_tokens) == (fresh, 4 * BLOCK)


def test_match_on_a_down_worker_is_named_in_large_fleets() -> None:
    sends = Sends(PrefixAware(1000), 100)
    chain = blocks("x", 4)
    sends.policy.sent(facts(chain), sends.table.workers["w7"])
    sends.table.workers["w7"].up = False
    sends.table.refresh()
    pick = sends.policy.rank(facts(chain), sends.table.fleet)
    assert pick.reason == base.UNHEALTHY
    assert [item[:2] for item in pick.candidates if not item[4]] == [("w7", 4 * BLOCK)]
    free = cost.cost(0, 0)
    assert [item[3] for item in pick.candidates if not item[4]] == [free], "its cost if it were up"


def test_retry_in_a_large_fleet_goes_to_another_worker() -> None:
    sends = Sends(PrefixAware(1000), 60)
    prompt = facts(blocks("x", 4))
    home = sends.send(prompt).worker
    rest = sends.table.fleet.without([home])
    assert rest.order is not None
    assert home not in rest.eligible
    for what in (prompt, facts(blocks("new", 4)), facts([], 10)):
        assert sends.policy.rank(what, rest).worker is not home
    for number in range(50):
        what = facts([], 5, b"s%d" % number)
        tried = SessionPolicy().rank(what, sends.table.fleet).worker
        assert SessionPolicy().rank(what, sends.table.fleet.without([tried])).worker is not tried


@pytest.mark.parametrize("count", [4, SMALL_FLEET, 50])
def test_round_robin_is_fair_in_fleets_of_any_size(count: int) -> None:
    sends = Sends(RoundRobin(), count)
    load(sends.table.workers["w1"], 10_000)
    rounds = [[sends.send(facts([], 9)).worker.id for _ in range(count)] for _ in range(3)]
    assert sorted(rounds[0]) == sorted(sends.table.workers)
    assert rounds[0] == rounds[1] == rounds[2]


@pytest.mark.parametrize("count", [4, 50])
def test_least_recently_picked_of_equals_is_next(count: int) -> None:
    for policy in (PrefixAware(10), SessionPolicy()):
        sends = Sends(policy, count)
        rounds = [[sends.send(facts([], 9)).worker.id for _ in range(count)] for _ in range(3)]
        assert sorted(rounds[0]) == sorted(sends.table.workers)
        assert rounds[0] == rounds[1] == rounds[2]


# -- routers without exchange


@pytest.mark.parametrize("count", [2, 8, 100])
def test_routers_send_a_new_prefix_to_the_same_worker(count: int) -> None:
    one, two = Sends(PrefixAware(1000), count), Sends(PrefixAware(1000), count)
    for number in range(30):  # each has a history of its own
        one.send(facts(blocks(f"one{number}", 3)))
    chosen = set()
    for number in range(60):
        prompt = facts(blocks(number, 10))
        first = one.send(prompt).worker.id
        assert two.send(prompt).worker.id == first
        longer = facts([*prompt.chain, *blocks(f"more{number}", 3)])
        assert two.send(longer).worker.id == first
        chosen.add(first)
    assert len(chosen) > min(count, 60) // 3


def test_routers_agree_behind_a_system_prompt_held_by_all_workers() -> None:
    one, two = Sends(PrefixAware(1000), 8), Sends(PrefixAware(1000), 8)
    system = blocks("system", 8)
    for sends in (one, two):
        for worker in sends.table.workers.values():
            sends.policy.sent(facts(system), worker)
    picks = [one.send(facts(system + blocks(n, 9))) for n in range(40)]
    assert {pick.reason for pick in picks} == {base.PREFIX_HIT}
    assert [two.send(facts(system + blocks(n, 9))).worker.id for n in range(40)] == [
        pick.worker.id for pick in picks
    ]
    assert len({pick.worker.id for pick in picks}) > 4


@pytest.mark.parametrize("count", [4, 60])
def test_only_large_load_differences_separate_routers(count: int) -> None:
    one, two = Sends(PrefixAware(1000), count), Sends(PrefixAware(1000), count)
    prompt = facts(blocks("p", 100))
    home = one.policy.rank(prompt, one.table.fleet).worker.id
    load(two.table.workers[home], int(cost.slack(prompt.tokens)) - 1)
    assert two.policy.rank(prompt, two.table.fleet).worker.id == home
    load(two.table.workers[home], 20 * prompt.tokens)
    assert two.policy.rank(prompt, two.table.fleet).worker.id != home


def test_new_prompt_prefers_free_memory_then_the_oldest_blocks() -> None:
    sends = Sends(PrefixAware(20), 4)
    order = list(sends.table.workers.values())
    last, oldest = order.pop(), order[0]
    for number, worker in enumerate(order):
        sends.policy.sent(facts(blocks(f"held {number}", 20)), worker)
    for number in range(5):
        assert sends.policy.rank(facts(blocks(number, 10)), sends.table.fleet).worker is last
    sends.policy.sent(facts(blocks("last", 20)), last)
    for number in range(5):
        assert sends.policy.rank(facts(blocks(number, 10)), sends.table.fleet).worker is oldest
    load(oldest, 20_000)
    assert sends.policy.rank(facts(blocks("p", 10)), sends.table.fleet).worker is order[1]


def test_large_fleets_compare_the_age_of_a_sample() -> None:
    policy = PrefixAware(20)
    sends = Sends(policy, 60)
    for number, worker in enumerate(sends.table.workers.values()):
        policy.sent(facts(blocks(f"held {number}", 20)), worker)
    older = 0
    for number in range(20):
        prompt = facts(blocks(number, 10))
        hashed, _ = sends.table.fleet.ring.find(prompt.chain[0])
        assert hashed is not None
        chosen = policy.displaced(policy.rank(prompt, sends.table.fleet).worker.id, prompt.tokens)
        assert chosen <= policy.displaced(hashed.id, prompt.tokens)
        older += chosen < policy.displaced(hashed.id, prompt.tokens)
    assert older > 5


async def test_two_routers_for_the_same_workers_agree() -> None:
    async with (
        FakeWorker() as a,
        FakeWorker() as b,
        FakeWorker() as c,
        router(a, b, c) as first,
        router(a, b, c) as second,
    ):
        assert first.router.identifier.digest(b"x") != second.router.identifier.digest(b"x")
        for number in range(12):
            request = post(chat(f"{number} " * 500))
            homes = []
            for server in (first, second):
                async with await Client.to(server.listen) as client:
                    await client.send(request)
                    homes.append((await client.response()).headers["x-emberline-worker"])
            assert homes[0] == homes[1]


# -- the ring


@given(st.integers(2, 40), st.integers(0, 2**32))
@settings(max_examples=30)
def test_only_keys_of_a_removed_worker_move(count: int, seed: int) -> None:
    workers = list(table(count).workers.values())
    rng = random.Random(seed)
    gone = rng.choice(workers)
    rest = HashRing([worker for worker in workers if worker is not gone])
    rng.shuffle(workers)
    ring = HashRing(workers)
    for _ in range(50):
        key = rng.getrandbits(64)
        before, after = ring.find(key)[0], rest.find(key)[0]
        assert (before is after) or before is gone


@pytest.mark.parametrize("count", [2, 8, 100])
def test_keys_are_spread_evenly(count: int) -> None:
    ring = HashRing(list(table(count).workers.values()))
    rng = random.Random(3)
    keys = 400 * count
    shares: dict[str, int] = {}
    for _ in range(keys):
        worker, _ = ring.find(rng.getrandbits(64))
        assert worker is not None
        shares[worker.id] = shares.get(worker.id, 0) + 1
    assert len(shares) == count
    assert max(shares.values()) < 1.7 * 400
    assert min(shares.values()) > 0.4 * 400


def test_only_eligible_workers_are_found() -> None:
    workers = list(table(10).workers.values())
    ring = HashRing(workers)
    fitting = {workers[3].id, workers[8].id}
    for key in blocks("k", 100):
        found, _ = ring.find(key, lambda worker: worker.id in fitting)
        assert found is None or found.id in fitting
    assert ring.find(5, lambda worker: False)[0] is None
    assert HashRing([]).find(5)[0] is None


# -- the order by load


@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=60), st.data())
def test_least_loaded_of_any_set_is_found(given: list[int], data: Any) -> None:
    workers = list(table(len(given)).workers.values())
    for worker, tokens in zip(workers, given, strict=True):
        load(worker, tokens)
    order = WorkersByLoad(workers)
    for _ in range(5):
        mover = workers[data.draw(st.integers(0, len(given) - 1))]
        load(mover, data.draw(st.integers(0, 50_000)))
    assert order._used == sum(1 << number for number in order._buckets)
    wanted = data.draw(st.sets(st.integers(0, len(given) - 1)))
    bits = sum(1 << workers[at].slot for at in wanted)
    turn = data.draw(st.integers(0, 2**64 - 1))
    found = order.lightest(bits, turn, 4)
    assert bool(found) == bool(wanted)
    if wanted:
        least = min(workers[at].load for at in wanted)
        assert all(w in [workers[at] for at in wanted] for w in found)
        assert {load_bucket(worker.load) for worker in found} == {load_bucket(least)}
        assert len(found) == len({worker.id for worker in found}) <= 4
    limit = data.draw(st.integers(0, 50_000))
    near = order.up_to(lambda load: load <= limit, bits)
    assert near & ~bits == 0
    for at in wanted:
        inside = bool(near >> workers[at].slot & 1)
        assert inside == (bucket_minimum(load_bucket(workers[at].load)) <= limit)


def test_search_starts_at_varying_workers() -> None:
    workers = list(table(100).workers.values())
    order = WorkersByLoad(workers)
    firsts = {order.lightest(order.bits, turn, 3)[0].id for turn in range(0, 10_000, 37)}
    assert len(firsts) > 50


@given(st.integers(0, 2**40))
def test_loads_of_one_bucket_differ_by_less_than_an_eighth(tokens: int) -> None:
    number = load_bucket(tokens)
    assert (
        bucket_minimum(number)
        <= tokens
        < bucket_minimum(number + 1)
        <= max(bucket_minimum(number) * 1.125, 8)
    )


# -- records


@pytest.mark.parametrize("policy", [PrefixAware(100), SessionPolicy(), RoundRobin()])
def test_records_are_bounded_and_explanations_are_not(policy: RoutingPolicy) -> None:
    sends = Sends(policy, 100)
    chain = blocks("x", 5)
    for number in range(40):
        policy.sent(facts(chain[: 1 + number % 5]), sends.table.workers[f"w{number}"])
    for number in range(40, 100):
        sends.table.workers[f"w{number}"].up = False
    sends.table.refresh()
    pick = policy.rank(facts(chain, session=b"s"), sends.table.fleet)
    shown = [item[0] for item in pick.candidates]
    assert pick.worker.id in shown
    assert len(shown) == len(set(shown)) <= MAX_CANDIDATES
    assert pick.total == 100
    every = policy.rank(facts(chain, session=b"s"), sends.table.fleet, shown=100)
    assert sorted(item[0] for item in every.candidates) == sorted(sends.table.workers)
    assert every.worker is pick.worker
    assert sum(not item[4] for item in every.candidates) == 60


async def test_admin_port_shows_a_sample_and_explains_all() -> None:
    async with FakeWorker() as fake:
        workers = [{"id": f"w{n}", "url": fake.url} for n in range(30)]
        async with router(fake, workers=workers) as server:
            async with await Client.to(server.listen) as client:
                await client.send(post(chat("hello " * 200)))
                await client.response()
            shown = (await admin(server, "/decisions")).json["decisions"][0]
            assert len(shown["candidates"]) <= MAX_CANDIDATES
            assert shown["candidates_total"] == 30
            body = b'{"model": "m", "prompt": "x"}'
            every = (await admin(server, "/explain", "POST", body)).json
            assert len(every["candidates"]) == every["candidates_total"] == 30


def test_cost_of_a_pinned_request_includes_cached_tokens() -> None:
    known = table(3)
    policy = PrefixAware(100)
    chain = blocks("x", 5)
    for worker in known.workers.values():
        policy.sent(facts(chain), worker)
    one, *others = known.eligible
    pick = policy.rank(facts(chain, 20), Fleet((one,), others))
    assert [item[3] for item in pick.candidates] == [cost.cost(0, 20)] * 3


def test_cache_sizes_bound_the_prefix_memory_and_may_change() -> None:
    known = table(2)
    policy = PrefixAware(1000)
    one, two = known.eligible
    policy.set_capacity(one.id, 11 * BLOCK)
    for worker in (one, two):
        for number in range(5):
            policy.sent(facts(blocks(number, 5)), worker)
    assert policy.sizes() == {"w0": 10, "w1": 25}
    policy.set_capacity(two.id, 8 * BLOCK)
    assert policy.sizes() == {"w0": 10, "w1": 7}
    newest = policy.rank(facts(blocks(4, 5)), Fleet((two,)))
    before = policy.rank(facts(blocks(3, 5)), Fleet((two,)))
    assert (newest.cached_tokens, before.cached_tokens) == (5 * BLOCK, 2 * BLOCK)
    policy.set_capacity(two.id, 100 * BLOCK)
    policy.forget(two)
    policy.sent(facts(blocks(9, 20)), two)
    assert policy.sizes() == {"w0": 10, "w1": 20}


def test_removed_workers_free_their_slots() -> None:
    known = table(20)
    policy = PrefixAware(100)
    slots = {worker.slot for worker in known.workers.values()}
    for number in range(200):
        gone = next(iter(known.workers.values()))
        known.remove(gone.id)
        policy.forget(gone)
        worker = newcomer(f"n{number}")
        known.add(worker)
        policy.set_capacity(worker.id, 1000)
        policy.sent(facts(blocks(number, 3)), worker)
        RequestCharge(worker, 5).end()
    assert {worker.slot for worker in known.workers.values()} == slots
    assert len(policy.sizes()) == len(policy._capacities) == 20


def test_long_new_prompt_goes_where_it_fits_beside_those_in_flight() -> None:
    fleet = table(2)
    full, free = fleet.workers["w0"], fleet.workers["w1"]
    running = blocks("running", 90)
    for worker in (full, free):
        worker.cache_tokens = 200 * BLOCK
    RequestCharge(full, 0, 90 * BLOCK, running).answered()
    load(free, int(full.load) + 1000)

    def chosen(what: RequestFacts, matched: dict[str, int]) -> str:
        return ranking.rank(what, fleet.fleet, matched, base.PREFIX_HIT, 16).worker.id

    new = facts(blocks("new", 50))
    assert chosen(new, {}) == "w1"
    assert chosen(facts([*running, *blocks("turn", 2)]), {"w0": 90 * BLOCK}) == "w0"
    full.cache_tokens = 0
    full.spare = inf
    assert chosen(new, {}) == "w0"
