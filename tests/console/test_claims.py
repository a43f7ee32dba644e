"""Claims with a real database file and several connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone as django_timezone

from console import claims
from console.claims import Observed, due, mark_due, take_claim

pytestmark = pytest.mark.django_db(transaction=True)


class Status(Observed):
    class Meta:
        app_label = "reconcile_tests"  # not installed, so it needs no migration


class Clock:
    """Manual replacement for django.utils.timezone in console.claims."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return django_timezone.now() + self.ahead

    def advance(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(claims, "timezone", clock)
    return clock


@pytest.fixture
def row(db: None) -> Iterator[int]:
    with connection.schema_editor() as editor:
        editor.create_model(Status)
    yield Status.objects.create().pk
    with connection.schema_editor() as editor:
        editor.delete_model(Status)


def test_one_of_many_threads_gets_the_claim(row: int) -> None:
    crowd = 8
    line = threading.Barrier(crowd)

    def one(_: int) -> bool:
        try:
            line.wait(timeout=30)
            return take_claim(Status, row) is not None
        finally:
            connection.close()

    for _ in range(5):
        with ThreadPoolExecutor(crowd) as pool:
            assert sum(pool.map(one, range(crowd))) == 1
        Status.objects.update(claim_until=None)


def test_claim_is_exclusive_until_released(row: int) -> None:
    first = take_claim(Status, row)
    assert first is not None
    assert take_claim(Status, row) is None
    assert first.release()
    assert take_claim(Status, row) is not None


def test_deleted_row_cannot_be_claimed(row: int) -> None:
    assert take_claim(Status, row + 1) is None


def test_expired_claim_prevents_late_writes(row: int, clock: Clock) -> None:
    late = take_claim(Status, row, ttl_s=10)
    assert late is not None
    clock.advance(11)
    assert not late.write(phase="Ready")
    taker = take_claim(Status, row, ttl_s=10)
    assert taker is not None
    assert taker.write(phase="Failed")
    assert not late.write(phase="Ready")
    assert not late.release(due_in_s=0)
    found = Status.objects.get(pk=row)
    assert (found.phase, found.claim_token) == ("Failed", taker.token)


def test_marks_of_a_clock_that_was_ahead_hold_nothing_up(row: int, clock: Clock) -> None:
    clock.advance(86_400)
    dead = take_claim(Status, row)
    clock.advance(-86_400)
    assert due(Status, clock.now()) == [row]
    assert claims.any_due(Status)
    again = take_claim(Status, row)
    assert again is not None
    assert dead is not None
    assert not dead.write(reason="late")
    assert due(Status, clock.now()) == []
    assert again.release(10.0)
    clock.advance(86_400)
    mark_due(Status, row)
    clock.advance(-86_400)
    assert due(Status, clock.now()) == [row]
    clock.advance(-86_400)  # behind: nothing waits for the next day either
    assert due(Status, clock.now()) == [row]


def test_dead_holder_leaves_the_row_due(row: int, clock: Clock) -> None:
    assert take_claim(Status, row, ttl_s=10)
    assert due(Status, clock.now()) == []
    clock.advance(11)
    assert due(Status, clock.now()) == [row]


def test_release_sets_the_next_time(row: int, clock: Clock) -> None:
    held = take_claim(Status, row)
    assert held
    held.release(due_in_s=5)
    assert due(Status, clock.now()) == []
    clock.advance(6)
    assert due(Status, clock.now()) == [row]
    held = take_claim(Status, row)
    assert held
    held.release()
    clock.advance(10_000)
    assert due(Status, clock.now()) == []


@pytest.mark.parametrize("due_in_s", [None, 300.0])
def test_request_during_a_claim_is_kept(row: int, clock: Clock, due_in_s: float | None) -> None:
    held = take_claim(Status, row)
    assert held
    mark_due(Status, row)
    assert due(Status, clock.now()) == []  # still claimed
    held.release(due_in_s=due_in_s)
    clock.advance(1)
    assert due(Status, clock.now()) == [row]


def test_due_rows_are_ordered_and_limited(row: int, clock: Clock) -> None:
    waiting = [Status.objects.create(due_at=clock.now() - timedelta(seconds=s)) for s in (5, 50)]
    assert due(Status, clock.now(), limit=2) == [waiting[1].pk, waiting[0].pk]
    Status.objects.filter(pk=waiting[1].pk).update(due_at=None)
    assert due(Status, clock.now(), limit=1) == [waiting[0].pk]


def test_any_due_agrees_with_due(row: int, clock: Clock) -> None:
    def agrees() -> bool:
        found = claims.any_due(Status)
        assert found is bool(due(Status, clock.now()))
        return found

    assert agrees()
    held = take_claim(Status, row, ttl_s=60)
    assert held
    assert not agrees(), "claimed"
    clock.advance(61)
    assert agrees(), "the holder died"
    held = take_claim(Status, row)
    assert held
    held.release(due_in_s=30)
    assert not agrees()
    clock.advance(31)
    assert agrees()
    Status.objects.update(due_at=None)
    assert not agrees()
