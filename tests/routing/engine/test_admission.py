"""Admission by itself: slots, rates, the queue, and what a caller is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from console.processkit.metrics import Histogram
from routing.engine import admission as module
from routing.engine.admission import Admission
from routing.engine.buckets import Bucket
from routing.engine.callers import WAITING, Ticket
from routing.engine.config import AdmissionConfig, Key, KeyLimits, QueueConfig, Rates
from routing.engine.decisions import Decision
from routing.engine.errors import Refusal
from routing.engine.keys import OPEN, KeyRing
from routing.engine.policies.base import Facts


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


def key(name: str, **limits: Any) -> Key:
    return Key(name, f"sha of {name}", limits=KeyLimits(**limits))


class Door:
    """An Admission, and what became of each request."""

    def __init__(self, *keys: Key, workers: int = 0, **config: Any) -> None:
        self.keys: tuple[Key, ...] | None = keys or None
        self.workers = workers  # slots of all workers; 0: no limit
        self.histogram = Histogram((0.0, 1.0))
        self.admission = Admission(self._room, self.histogram)
        self.configure(**config)
        self.running: list[Request] = []

    def _room(self) -> bool:
        return not self.workers or len(self.running) < self.workers

    def configure(self, **config: Any) -> None:
        self.config = AdmissionConfig(**config)
        ring = KeyRing(self.keys)
        self.admission.configure(self.config, ring, self.keys, capped=self.workers > 0)

    def ask(self, who: Key = OPEN, tokens: int = 100, held: int = 0) -> Request:
        request = Request(self, who.id)
        facts = Facts([], tokens, 64, b"")
        try:
            if self.admission.enter(request, who, facts, held, may_wait=True):
                request.go(0.0)
        except Refusal as refusal:
            request.refuse(refusal)
        return request


class Request:
    def __init__(self, door: Door, who: str) -> None:
        self.door = door
        self.who = who
        self.ticket: Ticket | None = None
        self.refusal: Refusal | None = None
        self.waited_s: float | None = None
        self.ended = False

    @property
    def state(self) -> str:
        if self.refusal is not None:
            return self.refusal.code
        if self.ended:
            return "ended"
        return "waiting" if self.waited_s is None else "running"

    def go(self, waited_s: float) -> None:
        assert self.state == "waiting"
        self.waited_s = waited_s
        self.door.running.append(self)

    def refuse(self, refusal: Refusal) -> None:
        assert self.state == "waiting"
        self.refusal = refusal
        if self.ticket is not None:
            self.end(0.0, 0.0)

    def end(
        self, tokens: float | None = None, work: float | None = None, completion: int = 0
    ) -> None:
        assert not self.ended
        assert self.ticket is not None
        self.ended = True
        if self in self.door.running:
            self.door.running.remove(self)
        self.door.admission.done(self.ticket, tokens, work, completion)
        assert self.ticket is None


def states(requests: list[Request]) -> list[str]:
    return [request.state for request in requests]


# -- slots


def test_nothing_configured_is_not_active() -> None:
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


def test_a_slot_is_given_on_as_soon_as_it_is_free(clock: Clock) -> None:
    door = Door(endpoint=Rates(max_in_flight=2))
    requests = [door.ask() for _ in range(4)]
    assert states(requests) == ["running", "running", "waiting", "waiting"]
    clock.now += 3
    requests[1].end()
    assert states(requests) == ["running", "ended", "running", "waiting"]
    assert requests[2].waited_s == 3
    assert door.histogram.counts == [2, 0, 1]


def test_a_key_has_its_own_slots_and_keeps_nobody_else_back() -> None:
    one, two = key("one", max_in_flight=1), key("two")
    door = Door(one, two, per_key=Rates(max_in_flight=2))
    requests = [door.ask(who) for who in (one, one, two, two, two)]
    assert states(requests) == ["running", "waiting", "running", "running", "waiting"]
    requests[2].end()
    assert states(requests) == ["running", "waiting", "ended", "running", "running"]
    requests[0].end()
    assert requests[1].state == "running"


def test_a_keys_higher_limit_counts_for_what_it_has_waiting() -> None:
    one, two = key("one"), key("two")
    door = Door(one, two, per_key=Rates(max_in_flight=1))
    requests = [door.ask(who) for who in (one, one, one, two, two)]
    requests[3].end()  # looks for who may go: not "one", which has its slot in use
    assert states(requests) == ["running", "waiting", "waiting", "ended", "running"]
    door.configure(per_key=Rates(max_in_flight=2))
    assert states(requests) == ["running", "running", "waiting", "ended", "running"]


def test_room_is_seen_again_when_nobody_waits_any_more() -> None:
    door = Door(workers=1)
    first, second = door.ask(), door.ask()
    second.end(0.0, 0.0)  # hung up
    first.end()
    assert door.ask().state == "running"


def test_a_zero_of_a_key_lifts_the_default() -> None:
    free = key("free", max_in_flight=0)
    door = Door(free, per_key=Rates(max_in_flight=1))
    assert states([door.ask(free) for _ in range(5)]) == ["running"] * 5


def test_workers_room_is_a_slot() -> None:
    door = Door(workers=1)
    requests = [door.ask() for _ in range(3)]
    assert states(requests) == ["running", "waiting", "waiting"]
    door.workers = 2  # another one came up
    door.admission.pump()
    assert states(requests) == ["running", "running", "waiting"]
    door.workers = 3  # and nobody said so: the next tick finds it
    door.admission.tick(0.0)
    assert states(requests) == ["running"] * 3
    door.workers = 4
    assert door.ask().state == "running"


def test_a_pinned_request_does_not_wait_but_counts() -> None:
    door = Door(endpoint=Rates(max_in_flight=1))
    first = door.ask()
    pinned = Request(door, "")
    assert door.admission.enter(pinned, OPEN, Facts([], 1, 64, b""), 0, may_wait=False)
    pinned.go(0.0)
    waiting = door.ask()
    first.end()
    assert waiting.state == "waiting"
    pinned.end()
    assert waiting.state == "running"


def test_many_who_fail_as_they_go_do_not_pile_up() -> None:
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


def test_a_flood_cannot_keep_others_out_of_their_turns() -> None:
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


def test_turns_count_work_and_not_requests() -> None:
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


def test_weights_share_the_work() -> None:
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


def test_long_answers_are_paid_for_afterwards() -> None:
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


def test_cached_tokens_are_no_work() -> None:
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


def test_a_queue_of_no_depth_refuses_at_once() -> None:
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


def test_who_waits_too_long_is_told(clock: Clock) -> None:
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


def test_leaving_the_queue_gives_the_place_and_the_tokens_back(clock: Clock) -> None:
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


# -- rates


def test_requests_a_minute(clock: Clock) -> None:
    door = Door(endpoint=Rates(requests_per_minute=60))
    assert states([door.ask() for _ in range(62)]) == ["running"] * 60 + ["rate_limit_requests"] * 2
    refusal = door.ask().refusal
    assert refusal is not None
    assert (refusal.kind.status, refusal.retry_after_s) == (429, 1)
    clock.now += refusal.retry_after_s
    assert door.ask().state == "running"
    assert door.ask().state == "rate_limit_requests"


def test_tokens_are_charged_by_estimate_and_corrected(clock: Clock) -> None:
    door = Door(endpoint=Rates(tokens_per_minute=6000))
    request = door.ask(tokens=1000)
    charged = 1000 + module._FIRST_COMPLETION
    assert door.admission.show()["tokens_left"] == 6000 - charged
    request.end(tokens=1500, work=1500, completion=500)
    assert door.admission.show()["tokens_left"] == 4500
    door.ask(tokens=1000).end()  # the engine did not say
    left = 4500 - 1000 - door.admission._completion
    assert door.admission.show()["tokens_left"] == pytest.approx(left, abs=1)
    door.ask(tokens=1000).end(tokens=0, work=0)  # no worker did anything
    assert door.admission.show()["tokens_left"] == pytest.approx(left, abs=1)


def test_the_estimate_follows_the_answers(clock: Clock) -> None:
    door = Door(endpoint=Rates(tokens_per_minute=10**9))
    for _ in range(200):
        door.ask(tokens=100).end(tokens=150, work=150, completion=50)
    assert door.admission.show()["expected_completion_tokens"] == 50


def test_an_answer_longer_than_all_leaves_a_debt_and_the_truth(clock: Clock) -> None:
    door = Door(endpoint=Rates(tokens_per_minute=6000))
    door.ask(tokens=1000).end(tokens=12_000, work=12_000, completion=11_000)
    assert door.admission.show()["tokens_left"] == -6000
    request = door.ask(tokens=100)
    assert request.refusal is not None
    wait = request.refusal.retry_after_s
    clock.now += wait - 1
    assert door.ask(tokens=100).state == "rate_limit_tokens"
    clock.now += 1
    assert door.ask(tokens=100).state == "running"


def test_a_request_above_a_whole_minute_is_slowed_down_and_not_refused_for_ever(
    clock: Clock,
) -> None:
    door = Door(endpoint=Rates(tokens_per_minute=600))
    assert door.ask(tokens=6000).state == "running"
    refusal = door.ask(tokens=6000).refusal
    assert refusal is not None
    assert refusal.retry_after_s == 626, "6,256 tokens at ten a second"
    clock.now += refusal.retry_after_s - 1
    assert door.ask(tokens=6000).state == "rate_limit_tokens"
    clock.now += 1
    assert door.ask(tokens=6000).state == "running", "full again"


def test_a_key_over_its_rate_is_told_so_and_others_are_not(clock: Clock) -> None:
    one, two = key("one"), key("two", requests_per_minute=3)
    door = Door(one, two, per_key=Rates(requests_per_minute=1))
    asked = [door.ask(who) for who in (one, one, two, two, two, two)]
    assert states(asked) == [
        "running", "key_rate_limit_requests", "running", "running", "running",
        "key_rate_limit_requests",
    ]  # fmt: skip
    first, second = asked[1].refusal, asked[5].refusal
    assert first is not None and second is not None
    assert (first.retry_after_s, second.retry_after_s) == (60, 20)
    assert b'"code":"rate_limit_exceeded"' in first.body()
    assert "This API key may use 1 requests a minute" in first.message


def test_the_longest_wait_is_told(clock: Clock) -> None:
    one = key("one", requests_per_minute=60)
    door = Door(one, endpoint=Rates(requests_per_minute=60, tokens_per_minute=600))
    asked = [door.ask(one, tokens=300) for _ in range(2)]
    refusal = asked[1].refusal
    assert refusal is not None
    # 300 + 256 were charged, 44 are left, 556 are wanted at 10 a second.
    assert (refusal.code, refusal.retry_after_s) == ("rate_limit_tokens", 52)


def test_of_two_waits_the_longer_is_told(clock: Clock) -> None:
    one = key("one", requests_per_minute=6)
    door = Door(one, endpoint=Rates(tokens_per_minute=600))
    for _ in range(6):
        door.ask(one, tokens=0)
    door.ask(key("other"), tokens=300)
    refusal = door.ask(one, tokens=300).refusal
    assert refusal is not None
    assert (refusal.code, refusal.retry_after_s) == ("rate_limit_tokens", 52), "and not 10"


def test_a_refused_request_takes_nothing(clock: Clock) -> None:
    one = key("one", requests_per_minute=100)
    door = Door(one, endpoint=Rates(max_in_flight=1), queue=QueueConfig(depth=0))
    door.ask(one)
    for _ in range(200):
        assert door.ask(one).state == "queue_full"


def test_buckets_do_not_save_more_than_a_minute() -> None:
    bucket = Bucket(60)
    assert bucket.level(1e6) == 60
    bucket.take(-5, 1e6)
    assert bucket.level(1e6) == 60
    bucket.take(30, 1e6)
    bucket.resize(120)
    assert bucket.level(1e6) == 60, "half stays used"
    bucket.take(60, 1e6)
    assert bucket.wait_s(2, 1e6) == 1.0
    assert bucket.wait_s(2, 1e6 + 1) == 0.0


def test_what_a_request_took_as_far_as_anybody_counted() -> None:
    decision = Decision("1", 1.0, "prefixaware")
    decision.prompt_tokens, decision.predicted = 100, 64
    assert decision.used() == (0.0, 0.0, 0), "it was never sent"
    decision.attempts, decision.status = 1, 502
    assert decision.used() == (0.0, 0.0, 0), "nobody worked for it"
    for status in (200, 499, None):
        decision.status = status
        assert decision.used()[2] == 0
    decision.status = 200
    assert decision.used() == (None, None, 0), "only the estimate is known"
    decision.estimated, decision.completion_tokens = False, 20
    assert decision.used() == (120, 56, 20), "by prediction 64 were cached"
    decision.cached_tokens = 0
    assert decision.used() == (120, 120, 20), "by the engine's word none was"


# -- what callers are told about the queue


def test_retry_after_follows_the_pace_of_the_callers_requests(clock: Clock) -> None:
    one, two = key("one"), key("two")
    queue = QueueConfig(depth=8, timeout_s=25)
    door = Door(one, two, endpoint=Rates(max_in_flight=1), queue=queue)
    for _ in range(9):
        door.ask(one)
    unknown = door.ask(one).refusal
    assert unknown is not None
    assert unknown.retry_after_s == 25, "nothing has ended yet: after the time limit all is new"
    for _ in range(4):
        clock.now += 2
        door.running[0].end()
    for _ in range(4):
        door.ask(one)
    told = door.ask(one).refusal
    assert told is not None
    assert told.retry_after_s == 16, "eight wait, one goes every two seconds"
    clock.now += 5  # the running one takes long
    slower = door.ask(one).refusal
    assert slower is not None
    assert slower.retry_after_s == 40


def test_without_a_queue_the_pace_is_that_of_the_ends(clock: Clock) -> None:
    door = Door(endpoint=Rates(max_in_flight=2), queue=QueueConfig(depth=0, timeout_s=25))
    told = []
    for _ in range(6):
        while len(door.running) < 2:
            door.ask()
        refusal = door.ask().refusal
        assert refusal is not None
        told.append(refusal.retry_after_s)
        clock.now += 3
        door.running[0].end()
    assert told[0] == 25, "nothing has ended yet"
    assert told[-1] == 3


def test_an_idle_hour_is_no_pace(clock: Clock) -> None:
    door = Door(endpoint=Rates(max_in_flight=1), queue=QueueConfig(depth=1))
    for _ in range(3):
        request = door.ask()
        clock.now += 1
        request.end()
        clock.now += 3600
    for _ in range(3):
        door.ask()
        door.ask()
        clock.now += 1
        door.running[0].end()
        clock.now += 1
        door.running[0].end()
        clock.now += 3600
    door.ask()
    door.ask()
    refusal = door.ask().refusal
    assert refusal is not None
    assert refusal.retry_after_s <= 2


# -- configuration, live


def test_more_slots_let_the_queue_go_on() -> None:
    door = Door(endpoint=Rates(max_in_flight=1))
    requests = [door.ask() for _ in range(5)]
    door.configure(endpoint=Rates(max_in_flight=3))
    assert states(requests) == ["running"] * 3 + ["waiting"] * 2
    door.configure(endpoint=Rates(max_in_flight=1))
    requests[0].end()
    assert states(requests).count("waiting") == 2
    door.configure()
    assert not door.admission.active
    assert states(requests[1:]) == ["running"] * 4
    for request in requests[1:]:
        request.end()
    assert door.admission.in_flight == 0


def test_a_smaller_queue_refuses_the_newest() -> None:
    limit = Rates(max_in_flight=1)
    door = Door(endpoint=limit)
    requests = [door.ask() for _ in range(6)]
    door.configure(endpoint=limit, queue=QueueConfig(depth=2))
    assert states(requests) == ["running", "waiting", "waiting"] + ["queue_full"] * 3
    assert door.admission.depth == 2


def test_a_shorter_time_counts_for_who_waits(clock: Clock) -> None:
    limit = Rates(max_in_flight=1)
    door = Door(endpoint=limit)
    door.ask()
    waiting = door.ask()
    clock.now += 5
    door.configure(endpoint=limit, queue=QueueConfig(timeout_s=4))
    assert waiting.state == "queue_timeout"


def test_a_withdrawn_key_waits_no_longer() -> None:
    one, two = key("one"), key("two")
    limit = Rates(max_in_flight=1)
    door = Door(one, two, endpoint=limit)
    requests = [door.ask(who) for who in (one, one, two)]
    door.keys = (replace(two, pin=True),)
    door.configure(endpoint=limit)
    assert states(requests) == ["running", "invalid_api_key", "waiting"]
    requests[0].end()
    assert requests[2].state == "running"
    shown = door.admission.show()["keys"]
    assert [entry["id"] for entry in shown] == ["two"], "nothing is kept of it"  # type: ignore[attr-defined]


def test_new_rates_keep_what_was_used(clock: Clock) -> None:
    one = key("one")
    door = Door(one, per_key=Rates(requests_per_minute=10))
    for _ in range(10):
        door.ask(one).end()
    door.configure(per_key=Rates(requests_per_minute=100))
    assert door.ask(one).state == "key_rate_limit_requests", "a new rate is not a new minute"
    clock.now += 6
    assert states([door.ask(one) for _ in range(11)])[:10] == ["running"] * 10


# -- all of it, in any order


class AnyOrder(RuleBasedStateMachine):
    """Limits hold, no slot is idle while somebody may take it, and every end is counted once."""

    def __init__(self) -> None:
        super().__init__()
        self.all_keys = (key("a"), key("b", max_in_flight=1), key("c", weight=3))
        self.door = Door(*self.all_keys, endpoint=Rates(max_in_flight=3), workers=4)
        self.asked: list[Request] = []
        self.now = 0.0

    def alive(self, state: str) -> list[Request]:
        return [request for request in self.asked if request.state == state]

    @rule(who=st.integers(0, 2), tokens=st.integers(0, 5000), held=st.integers(0, 50))
    def ask(self, who: int, tokens: int, held: int) -> None:
        keys = self.door.keys or ()
        if who < len(keys):
            self.asked.append(self.door.ask(keys[who], tokens, held))

    @rule(pick=st.integers(0, 100), work=st.integers(0, 5000))
    def end(self, pick: int, work: int) -> None:
        if running := self.alive("running"):
            running[pick % len(running)].end(work, work, completion=work % 7)

    @rule(pick=st.integers(0, 100))
    def hang_up(self, pick: int) -> None:
        if waiting := self.alive("waiting"):
            waiting[pick % len(waiting)].end(0.0, 0.0)

    @rule(
        most=st.integers(0, 4), depth=st.integers(0, 6), own=st.integers(0, 2),
        workers=st.integers(1, 5), keys=st.integers(1, 3),
    )  # fmt: skip
    def configure(self, most: int, depth: int, own: int, workers: int, keys: int) -> None:
        self.door.workers = workers
        self.door.keys = self.all_keys[:keys]
        self.door.configure(
            endpoint=Rates(max_in_flight=most),
            per_key=Rates(max_in_flight=own),
            queue=QueueConfig(depth=depth, body_bytes=100 + depth * 20),
        )

    @precondition(lambda self: self.asked)
    @rule()
    def wait_too_long(self) -> None:
        self.door.admission.tick(1e12)
        assert not self.alive("waiting")

    @invariant()
    def numbers_are_right(self) -> None:
        admission = self.door.admission
        waiting, running = self.alive("waiting"), self.alive("running")
        assert admission.depth == len(waiting) <= self.door.config.queue.depth
        assert admission.in_flight == len(running) == len(self.door.running)
        assert admission._held_bytes == sum(
            request.ticket.body_bytes for request in waiting if request.ticket is not None
        )
        assert 0 <= admission._held_bytes <= self.door.config.queue.body_bytes
        for caller in admission._callers.values():
            assert caller.in_flight == sum(request.who == caller.id for request in running)
            assert len(caller.waiting) == sum(request.who == caller.id for request in waiting)
        assert all(r.ticket is not None and r.ticket.state == WAITING for r in waiting)

    @invariant()
    def no_slot_is_idle(self) -> None:
        admission = self.door.admission
        most = self.door.config.endpoint.max_in_flight
        if (most and admission.in_flight >= most) or not self.door._room():
            return
        for caller in admission._callers.values():
            assert not (caller.waiting and caller.ready()), "a slot is free for somebody who waits"

    def teardown(self) -> None:
        while running := self.alive("running"):
            running[0].end(1, 1)
        assert not self.alive("waiting")
        assert self.door.admission.in_flight == self.door.admission.depth == 0


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
