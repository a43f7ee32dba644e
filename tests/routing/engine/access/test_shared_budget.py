"""Token budgets that several routers use up together."""

from __future__ import annotations

from routing.engine.access.shared_budget import SharedBudget


def test_what_is_left_does_not_depend_on_the_time_of_a_message():
    shared = SharedBudget()
    shared.set_left(100, {"a": 1000, "b": 500})
    assert shared.unused(10_000, "a", 1000) == 100
    shared.apply_peer("b", 530, 7, 63, newer=False)
    assert shared.unused(10_000, "a", 1010) == 60
    assert shared.reserved == 7
    # The console's next figure includes it; an earlier figure of the peer changes nothing.
    shared.set_left(60, {"a": 1010, "b": 530})
    shared.apply_peer("b", 520, 0, 63, newer=False)
    assert shared.unused(10_000, "a", 1010) == 60


def test_use_of_an_ended_router_stays_until_the_console_counts_it():
    shared = SharedBudget()
    shared.apply_peer("b", 30, 50, 70, newer=False)
    shared.lost("b")
    assert (shared.unused(100, "a", 0), shared.reserved) == (70, 0)
    shared.set_left(75, {"a": 0, "b": 25})
    assert shared.unused(100, "a", 0) == 70


def test_new_router_takes_over_what_older_ones_have_left():
    shared = SharedBudget()
    # Used in earlier periods, mostly.
    shared.apply_peer("b", 5_000, 0, 40, newer=True)
    shared.apply_peer("c", 7_000, 0, 40, newer=True)
    assert shared.unused(100, "a", 0) == 40
    shared.apply_peer("c", 7_010, 0, 30, newer=True)
    assert shared.unused(100, "a", 5) == 25


def test_period_begins_with_the_whole_budget():
    shared = SharedBudget()
    shared.set_left(0, {"a": 60, "b": 40})
    shared.apply_peer("b", 45, 0, 0, newer=False)
    shared.begin_period("a", 60)
    assert shared.unused(100, "a", 60) == 100
    shared.apply_peer("b", 55, 0, 0, newer=False)
    assert shared.unused(100, "a", 65) == 85
