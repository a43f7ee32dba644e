"""The steps of recovery: the start, gaps, restarts, and what is lost while all is quiet."""

from __future__ import annotations

import pytest

from routing.engine.kv.recovery import IDLE_POLL_S, RecoveryPhase
from tests.routing.engine.kv.publisher import Source


def test_history_first_then_what_came_live_meanwhile() -> None:
    source = Source()
    for _ in range(3):
        source.publish(lost=True)
    source.follower.is_connected(source.now)
    assert source.asked == [0]
    source.publish()
    assert source.applied == []  # held back
    assert source.follower.phase is RecoveryPhase.CATCHING_UP
    source.answer()
    assert source.has(0, 1, 2, 3)
    assert not source.follower.partial
    source.publish()
    assert source.has(0, 1, 2, 3, 4)
    assert source.follower.counts["duplicate"] == 1


def test_a_held_message_of_a_process_that_is_gone_ends_in_one_more_start() -> None:
    source = Source()
    source.follower.is_connected(source.now)
    source.publish()  # held back
    source.restart()  # and nobody notices
    source.publish(lost=True)
    source.answer()
    assert source.has(0)
    assert source.follower.counts["restart_sequence"] == 1


def test_what_came_by_the_connection_before_does_not_count() -> None:
    source = Source()
    source.follower.is_connected(source.now)
    source.publish()
    source.restart()
    source.follower.is_disconnected()
    source.follower.is_connected(source.now)
    source.publish()
    source.answer()
    assert source.has(0)
    assert not source.counted("restart_sequence")


def test_a_held_message_older_than_all_the_publisher_has_is_no_restart() -> None:
    source = Source(buffer=1)
    source.follower.is_connected(source.now)
    source.publish()
    source.publish(lost=True)
    source.answer()
    assert source.has(1)
    assert source.follower.partial
    assert not source.counted("restart_sequence")


def test_a_replayed_batch_which_comes_live_later_is_no_restart() -> None:
    source = Source()
    source.follower.is_connected(source.now)
    late = [source.publish(lost=True), source.publish(lost=True)]
    source.answer()
    for message in late:
        source.follower.live(*message, source.now)
    assert source.has(0, 1)
    assert source.follower.counts["duplicate"] == 2
    assert not source.counted("restart_sequence")
    source.publish()
    assert not source.follower._replayed  # none of them can come any more


def test_number_0_right_after_connecting_is_no_gap() -> None:
    for replay in (True, False):
        source = Source(replay=replay)
        source.connect()
        source.publish()
        assert source.has(0)
        assert not source.follower.partial
        assert not source.counted("gap")


def test_a_truncated_history_is_known_as_such() -> None:
    source = Source(buffer=2)
    for _ in range(5):
        source.publish(lost=True)
    source.connect()
    assert source.has(3, 4)
    assert source.follower.partial
    assert source.counted("replay_truncated")


def test_a_gap_is_filled() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.publish(lost=True)
    source.publish(lost=True)
    source.publish()
    assert source.has(0)
    source.answer()
    assert source.has(0, 1, 2, 3)
    assert source.counted("gap", "gap_filled")
    assert not source.follower.partial


def test_a_gap_the_publisher_has_forgotten_drops_everything() -> None:
    source = Source(buffer=2)
    source.connect()
    source.publish()
    for _ in range(3):
        source.publish(lost=True)
    source.publish()
    source.answer()
    assert source.has(3, 4)
    assert source.follower.partial
    assert source.counted("gap_lost")


def test_a_gap_without_replay_drops_everything() -> None:
    source = Source(replay=False)
    source.connect()
    source.publish()
    source.publish(lost=True)
    source.publish()
    assert source.has(2)
    assert source.follower.partial
    assert source.counted("no_replay", "gap_lost")
    assert source.asked == []


def test_a_late_start_without_replay_is_partial() -> None:
    source = Source(replay=False)
    source.publish(lost=True)
    source.connect()
    source.publish()
    assert source.has(1)
    assert source.follower.partial
    assert source.counted("joined_late")


@pytest.mark.parametrize("replay", [True, False])
def test_numbers_going_back_are_another_process(replay: bool) -> None:
    source = Source(replay=replay)
    source.connect()
    for _ in range(3):
        source.publish()
    source.restart()
    source.publish()
    source.answer()
    assert source.has(0)
    source.publish()
    assert source.has(0, 1)
    assert source.counted("restart_sequence")
    assert not source.follower.partial


def test_a_silent_restart_is_seen_by_the_idle_poll() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.publish()
    source.restart()
    source.wait()
    assert source.applied == []
    assert source.counted("poll", "restart_replay")


def test_a_restart_behind_a_lost_connection_is_seen_though_numbers_fit() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.publish()
    source.restart()
    source.follower.is_disconnected()
    for _ in range(2):
        source.publish(lost=True)
    source.connect()
    assert source.has(0, 1)
    assert source.counted("restart_replay")
    source.publish()
    assert source.has(0, 1, 2)


def test_a_new_connection_to_the_same_process_keeps_all() -> None:
    source = Source()
    source.connect()
    for _ in range(3):
        source.publish()
    source.follower.is_disconnected()
    source.publish(lost=True)
    source.connect()
    assert source.has(0, 1, 2, 3)
    assert not source.counted("restart_replay")


def test_a_new_connection_which_cannot_be_verified_starts_anew() -> None:
    source = Source(buffer=1)
    source.connect()
    source.publish()
    source.follower.is_disconnected()
    source.publish(lost=True)
    source.connect()
    assert source.has(1)
    assert source.follower.partial
    assert source.counted("restart_replay")


def test_a_gap_across_a_restart_is_not_filled_with_another_processs_batches() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.restart()
    for _ in range(3):
        source.publish(lost=True)
    source.publish()  # number 3 after 0: looks like a gap
    source.answer()
    assert source.has(0, 1, 2, 3)
    assert source.counted("gap", "restart_replay")


def test_a_lost_last_batch_is_found_while_idle() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.publish(lost=True)
    source.wait(IDLE_POLL_S - 0.1)
    assert source.has(0)
    source.wait(0.2)
    assert source.has(0, 1)
    assert source.counted("poll", "poll_found")


def test_a_lost_first_batch_is_found_while_idle() -> None:
    source = Source()
    source.connect()
    source.publish(lost=True)
    source.wait()
    assert source.has(0)


def test_nobody_polls_while_messages_come_or_without_replay() -> None:
    source = Source()
    source.connect()
    for _ in range(5):
        source.wait(IDLE_POLL_S / 2)
        source.publish()
    assert not source.counted("poll")
    source = Source(replay=False)
    source.connect()
    source.wait(100)
    assert not source.counted("poll")


def test_a_poll_is_not_in_the_way_of_live_messages() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.answering = False
    source.wait()
    assert source.counted("poll")
    source.publish()
    assert source.has(0, 1)
    source.answering = True
    source.answer()
    assert source.has(0, 1)
