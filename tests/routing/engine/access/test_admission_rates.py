"""Admission: rates and reported waiting times."""

from __future__ import annotations

import pytest

from routing.engine.access import admission as module
from routing.engine.access.callers import Bucket
from routing.engine.config import QueueConfig, Rates
from routing.engine.observe.decisions import Decision
from tests.routing.engine.access.admission_rig import Clock, Door, key, states, stop_the_clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stop_the_clock(monkeypatch)


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
    charged = 1000 + module._INITIAL_COMPLETION_TOKENS
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


def test_response_above_the_limit_leaves_a_debt(clock: Clock) -> None:
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


def test_request_above_one_minute_of_tokens_is_delayed_not_rejected(clock: Clock) -> None:
    door = Door(endpoint=Rates(tokens_per_minute=600))
    assert door.ask(tokens=6000).state == "running"
    refusal = door.ask(tokens=6000).refusal
    assert refusal is not None
    assert refusal.retry_after_s == 626, "6,256 tokens at ten a second"
    clock.now += refusal.retry_after_s - 1
    assert door.ask(tokens=6000).state == "rate_limit_tokens"
    clock.now += 1
    assert door.ask(tokens=6000).state == "running", "full again"


def test_only_the_key_over_its_rate_is_rejected(clock: Clock) -> None:
    one, two = key("one"), key("two", requests_per_minute=3)
    door = Door(one, two, per_key=Rates(requests_per_minute=1))
    requested = [door.ask(who) for who in (one, one, two, two, two, two)]
    assert states(requested) == [
        "running", "key_rate_limit_requests", "running", "running", "running",
        "key_rate_limit_requests",
    ]  # fmt: skip
    first, second = requested[1].refusal, requested[5].refusal
    assert first is not None and second is not None
    assert (first.retry_after_s, second.retry_after_s) == (60, 20)
    assert b'"code":"rate_limit_exceeded"' in first.body()
    assert "This API key may use 1 requests a minute" in first.message


def test_longest_wait_is_reported(clock: Clock) -> None:
    one = key("one", requests_per_minute=60)
    door = Door(one, endpoint=Rates(requests_per_minute=60, tokens_per_minute=600))
    requested = [door.ask(one, tokens=300) for _ in range(2)]
    refusal = requested[1].refusal
    assert refusal is not None
    # 300 + 256 were charged, 44 are left, 556 are wanted at 10 a second.
    assert (refusal.code, refusal.retry_after_s) == ("rate_limit_tokens", 52)


def test_longer_of_two_waits_is_reported(clock: Clock) -> None:
    one = key("one", requests_per_minute=6)
    door = Door(one, endpoint=Rates(tokens_per_minute=600))
    for _ in range(6):
        door.ask(one, tokens=0)
    door.ask(key("other"), tokens=300)
    refusal = door.ask(one, tokens=300).refusal
    assert refusal is not None
    assert (refusal.code, refusal.retry_after_s) == ("rate_limit_tokens", 52), "and not 10"


def test_rejected_requests_use_no_budget(clock: Clock) -> None:
    one = key("one", requests_per_minute=100)
    door = Door(one, endpoint=Rates(max_in_flight=1), queue=QueueConfig(depth=0))
    door.ask(one)
    for _ in range(200):
        assert door.ask(one).state == "queue_full"


def test_buckets_hold_at_most_one_minute() -> None:
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


def test_charged_tokens_follow_the_known_counts() -> None:
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
    decision.estimated, decision.counted, decision.completion_tokens = False, True, 20
    assert decision.used() == (120, 56, 20), "by prediction 64 were cached"
    decision.cached_tokens = 0
    assert decision.used() == (120, 120, 20), "by the engine's word none was"


# -- queue information in responses


def test_retry_after_follows_the_request_rate_of_the_caller(clock: Clock) -> None:
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
    reported = door.ask(one).refusal
    assert reported is not None
    assert reported.retry_after_s == 16, "eight wait, one goes every two seconds"
    clock.now += 5  # the running one takes long
    slower = door.ask(one).refusal
    assert slower is not None
    assert slower.retry_after_s == 40


def test_without_a_queue_the_completion_rate_counts(clock: Clock) -> None:
    door = Door(endpoint=Rates(max_in_flight=2), queue=QueueConfig(depth=0, timeout_s=25))
    received = []
    for _ in range(6):
        while len(door.running) < 2:
            door.ask()
        refusal = door.ask().refusal
        assert refusal is not None
        received.append(refusal.retry_after_s)
        clock.now += 3
        door.running[0].end()
    assert received[0] == 25, "nothing has ended yet"
    assert received[-1] == 3


def test_idle_hour_gives_no_rate(clock: Clock) -> None:
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
