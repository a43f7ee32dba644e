"""Admission: changes while requests are queued, in any order."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from routing.engine.access.callers import WAITING
from routing.engine.config import QueueConfig, Rates
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


# -- configuration, live


def test_added_slots_admit_queued_requests() -> None:
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


def test_smaller_queue_rejects_the_newest_requests() -> None:
    limit = Rates(max_in_flight=1)
    door = Door(endpoint=limit)
    requests = [door.ask() for _ in range(6)]
    door.configure(endpoint=limit, queue=QueueConfig(depth=2))
    assert states(requests) == ["running", "waiting", "waiting"] + ["queue_full"] * 3
    assert door.admission.depth == 2


def test_shorter_timeout_applies_to_queued_requests(clock: Clock) -> None:
    limit = Rates(max_in_flight=1)
    door = Door(endpoint=limit)
    door.ask()
    waiting = door.ask()
    clock.now += 5
    door.configure(endpoint=limit, queue=QueueConfig(timeout_s=4))
    assert waiting.state == "queue_timeout"


def test_withdrawn_key_leaves_the_queue() -> None:
    one, two = key("one"), key("two")
    limit = Rates(max_in_flight=1)
    door = Door(one, two, endpoint=limit)
    requests = [door.ask(who) for who in (one, one, two)]
    door.keys = (msgspec.structs.replace(two, pin=True),)
    door.configure(endpoint=limit)
    assert states(requests) == ["running", "invalid_api_key", "waiting"]
    requests[0].end()
    assert requests[2].state == "running"
    shown = door.admission.show()["keys"]
    assert [entry["id"] for entry in shown] == ["two"], "nothing is kept of it"  # type: ignore[attr-defined]


def test_changed_rates_keep_recorded_usage(clock: Clock) -> None:
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
    """Limits hold, no slot is idle while a request may take it, and every end is counted once."""

    def __init__(self) -> None:
        super().__init__()
        self.all_keys = (key("a"), key("b", max_in_flight=1), key("c", weight=3))
        self.door = Door(*self.all_keys, endpoint=Rates(max_in_flight=3), workers=4)
        self.started: list[Request] = []
        self.now = 0.0

    def alive(self, state: str) -> list[Request]:
        return [request for request in self.started if request.state == state]

    @rule(who=st.integers(0, 2), tokens=st.integers(0, 5000), held=st.integers(0, 50))
    def ask(self, who: int, tokens: int, held: int) -> None:
        keys = self.door.keys or ()
        if who < len(keys):
            self.started.append(self.door.ask(keys[who], tokens, held))

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

    @precondition(lambda self: self.started)
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
