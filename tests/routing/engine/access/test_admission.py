"""Admission: slots, order, and queue limits."""

from __future__ import annotations

from typing import Any

import pytest

from routing.engine.access.keys import OPEN_ACCESS_KEY
from routing.engine.config import QueueConfig, Rates
from routing.engine.errors import Refusal
from routing.engine.policies.base import RequestFacts
from tests.routing.engine.access.admission_rig import (
    Clock,
    Door,
    Request,
    key,
    states,
    stop_the_clock,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stop_the_clock(monkeypatch)


# -- slots


def test_queue_without_limits_is_inactive() -> None:
    assert not Door().admission.active
    assert not Door(key("a")).admission.active
    assert Door().admission.limit == 0
    for door in (
        Door(endpoint=Rates(max_in_flight=1)),
        Door(per_key=Rates(requests_per_minute=1)),
        Door(key("a", tokens_per_minute=1)),
        Door(key("a"), per_key=Rates(max_in_flight=1)),
        Door(workers=1),
    ):
        assert door.admission.active
        assert door.admission.limit == 1000


def test_freed_slot_is_reassigned_at_once(clock: Clock) -> None:
    door = Door(endpoint=Rates(max_in_flight=2))
    requests = [door.ask() for _ in range(4)]
    assert states(requests) == ["running", "running", "waiting", "waiting"]
    clock.now += 3
    requests[1].end()
    assert states(requests) == ["running", "ended", "running", "waiting"]
    assert requests[2].waited_s == 3
    assert door.histogram.counts == [2, 0, 1]


def test_slots_of_one_key_do_not_block_other_keys() -> None:
    one, two = key("one", max_in_flight=1), key("two")
    door = Door(one, two, per_key=Rates(max_in_flight=2))
    requests = [door.ask(who) for who in (one, one, two, two, two)]
    assert states(requests) == ["running", "waiting", "running", "running", "waiting"]
    requests[2].end()
    assert states(requests) == ["running", "waiting", "ended", "running", "running"]
    requests[0].end()
    assert requests[1].state == "running"


def test_higher_limit_of_a_key_applies_to_its_queue() -> None:
    one, two = key("one"), key("two")
    door = Door(one, two, per_key=Rates(max_in_flight=1))
    requests = [door.ask(who) for who in (one, one, one, two, two)]
    requests[3].end()  # looks for who may go: not "one", which has its slot in use
    assert states(requests) == ["running", "waiting", "waiting", "ended", "running"]
    door.configure(per_key=Rates(max_in_flight=2))
    assert states(requests) == ["running", "running", "waiting", "ended", "running"]


def test_slot_freed_with_an_empty_queue_is_reused() -> None:
    door = Door(workers=1)
    first, second = door.ask(), door.ask()
    second.end(0.0, 0.0)  # hung up
    first.end()
    assert door.ask().state == "running"


def test_zero_limit_of_a_key_lifts_the_default() -> None:
    free = key("free", max_in_flight=0)
    door = Door(free, per_key=Rates(max_in_flight=1))
    assert states([door.ask(free) for _ in range(5)]) == ["running"] * 5


def test_worker_capacity_counts_as_a_slot() -> None:
    door = Door(workers=1)
    requests = [door.ask() for _ in range(3)]
    assert states(requests) == ["running", "waiting", "waiting"]
    door.workers = 2  # another one came up
    door.admission.pump()
    assert states(requests) == ["running", "running", "waiting"]
    door.workers = 3  # without a notice: the next tick detects it
    door.admission.tick(0.0)
    assert states(requests) == ["running"] * 3
    door.workers = 4
    assert door.ask().state == "running"


def test_pinned_requests_skip_the_queue_and_are_counted() -> None:
    door = Door(endpoint=Rates(max_in_flight=1))
    first = door.ask()
    pinned = Request(door, "")
    assert door.admission.enter(
        pinned, OPEN_ACCESS_KEY, RequestFacts([], 1, 64, b""), 0, may_wait=False
    )
    pinned.go(0.0)
    waiting = door.ask()
    first.end()
    assert waiting.state == "waiting"
    pinned.end()
    assert waiting.state == "running"


def test_requests_that_fail_on_admission_do_not_pile_up() -> None:
    door = Door(endpoint=Rates(max_in_flight=1), queue=QueueConfig(depth=5000))
    first = door.ask()
    waiting = [door.ask() for _ in range(3000)]

    def fail(request: Request) -> Any:
        return lambda _waited_s: request.refuse(Refusal("no_healthy_worker", "none"))

    for request in waiting:
        request.go = fail(request)  # type: ignore[method-assign]
    first.end()
    assert set(states(waiting)) == {"no_healthy_worker"}
    assert door.admission.in_flight == door.admission.depth == 0


# -- fairness


def test_request_flood_does_not_starve_other_keys() -> None:
    flood, other = key("flood"), key("other")
    door = Door(flood, other, endpoint=Rates(max_in_flight=1), queue=QueueConfig(depth=10))
    requests = [door.ask(flood) for _ in range(100)]
    assert states(requests).count("waiting") == 10
    assert states(requests).count("queue_full") == 89
    mine = [door.ask(other) for _ in range(5)]
    assert states(mine) == ["waiting"] * 5, "a full queue makes room for who has less in it"
    assert states(requests).count("waiting") == 5
    assert door.ask(flood).state == "queue_full"
    assert door.ask(other).state == "queue_full", "an equal share and not more"
    for _ in range(10):
        door.running[0].end()
    assert mine[4].ended or mine[4].state == "running"


def test_turns_are_weighted_by_tokens() -> None:
    small, large = key("small"), key("large")
    door = Door(small, large, endpoint=Rates(max_in_flight=1))
    door.ask(small, tokens=0)
    for _ in range(60):
        door.ask(small, tokens=100)
        door.ask(large, tokens=1000)
    went = {"small": 0.0, "large": 0.0}
    for _ in range(50):
        running = door.running[0]
        assert running.ticket is not None
        went[running.who] += running.ticket.cost
        running.end()
    assert 0.7 < went["small"] / went["large"] < 1.4


def test_slots_are_shared_by_weight() -> None:
    gold, plain = key("gold", weight=3), key("plain")
    door = Door(gold, plain, endpoint=Rates(max_in_flight=1))
    door.ask(plain)
    for _ in range(100):
        door.ask(gold)
        door.ask(plain)
    went = []
    for _ in range(80):
        went.append(door.running[0].who)
        door.running[0].end()
    assert 57 <= went.count("gold") <= 63


def test_long_responses_are_charged_afterwards() -> None:
    long, short = key("long"), key("short")
    door = Door(long, short, endpoint=Rates(max_in_flight=1))
    for _ in range(100):
        door.ask(long)
        door.ask(short)
    work = {"long": 0.0, "short": 0.0}
    for _ in range(90):
        running = door.running[0]
        took = 2000.0 if running.who == "long" else 200.0
        work[running.who] += took
        running.end(tokens=took, work=took)
    assert 0.6 < work["long"] / work["short"] < 1.7


def test_cached_tokens_are_free() -> None:
    warm, cold = key("warm"), key("cold")
    door = Door(warm, cold, endpoint=Rates(max_in_flight=1))
    for _ in range(100):
        door.ask(warm)
        door.ask(cold)
    went = []
    for _ in range(90):
        running = door.running[0]
        went.append(running.who)
        running.end(tokens=400, work=100 if running.who == "warm" else 400)
    assert went.count("warm") > 3 * went.count("cold")


# -- the queue's limits


def test_queue_of_depth_zero_rejects_at_once() -> None:
    door = Door(endpoint=Rates(max_in_flight=1), queue=QueueConfig(depth=0))
    assert states([door.ask(), door.ask()]) == ["running", "queue_full"]


def test_bytes_held_are_bounded_and_shared(clock: Clock) -> None:
    flood, other = key("flood"), key("other")
    queue = QueueConfig(depth=100, body_bytes=1000)
    door = Door(flood, other, endpoint=Rates(max_in_flight=1), queue=queue)
    requests = [door.ask(flood, held=300) for _ in range(6)]
    assert states(requests) == ["running"] + ["waiting"] * 3 + ["queue_full"] * 2
    assert door.ask(other, held=600).state == "queue_full", "more than half of it"
    assert door.ask(other, held=400).state == "waiting"
    assert states(requests[1:4]) == ["waiting", "waiting", "queue_full"]
    assert door.ask(other, held=0).state == "waiting"
    assert door.admission.show()["waiting_bytes"] == 1000
    assert door.ask(flood, held=1001).state == "queue_full", "can never wait"


def test_queue_timeout_is_reported_to_the_client(clock: Clock) -> None:
    queue = QueueConfig(timeout_s=10)
    door = Door(endpoint=Rates(max_in_flight=1), queue=queue)
    first, second = door.ask(), door.ask()
    clock.now += 5
    third = door.ask()
    clock.now += 4.9
    door.admission.tick(clock.now)
    assert states([first, second, third]) == ["running", "waiting", "waiting"]
    clock.now += 0.1
    door.admission.tick(clock.now)
    assert states([first, second, third]) == ["running", "queue_timeout", "waiting"]
    assert second.refusal is not None
    assert second.refusal.kind.status == 429
    assert second.refusal.retry_after_s >= 1


def test_leaving_the_queue_returns_slot_and_tokens(clock: Clock) -> None:
    door = Door(endpoint=Rates(max_in_flight=1, tokens_per_minute=10_000))
    first = door.ask()
    before = door.admission.show()
    waiting = [door.ask() for _ in range(20)]
    assert door.admission.show()["tokens_left"] != before["tokens_left"]
    for request in waiting:
        request.end(0.0, 0.0)  # hung up
    after = door.admission.show()
    assert (after["waiting"], after["in_flight"]) == (0, 1)
    assert after["tokens_left"] == before["tokens_left"]
    last = door.ask()
    first.end()
    assert last.state == "running"
