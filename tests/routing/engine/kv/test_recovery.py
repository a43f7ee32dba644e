"""Recovery steps: start, gaps, restarts, and losses while idle."""

from __future__ import annotations

import pytest

from routing.engine.kv.recovery import IDLE_POLL_S, RecoveryPhase
from tests.routing.engine.kv.publisher import Source


def test_history_precedes_buffered_live_messages() -> None:
    source = Source()
    for _ in range(3):
        source.publish(lost=True)
    source.follower.is_connected(source.now)
    assert source.replay_starts == [0]
    source.publish()
    assert source.applied == []  # held back
    assert source.follower.phase is RecoveryPhase.CATCHING_UP
    source.answer()
    assert source.has(0, 1, 2, 3)
    assert not source.follower.partial
    source.publish()
    assert source.has(0, 1, 2, 3, 4)
    assert source.follower.counts["duplicate"] == 1


def test_buffered_message_of_an_ended_process_causes_one_more_restart() -> None:
    source = Source()
    source.follower.is_connected(source.now)
    source.publish()  # held back
    source.restart()  # unnoticed
    source.publish(lost=True)
    source.answer()
    assert source.has(0)
    assert source.follower.counts["restart_sequence"] == 1


def test_messages_of_the_previous_connection_are_ignored() -> None:
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


def test_buffered_message_older_than_the_history_is_no_restart() -> None:
    source = Source(buffer=1)
    source.follower.is_connected(source.now)
    source.publish()
    source.publish(lost=True)
    source.answer()
    assert source.has(1)
    assert source.follower.partial
    assert not source.counted("restart_sequence")


def test_replayed_batch_repeated_live_is_no_restart() -> None:
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


def test_sequence_0_after_connecting_is_no_gap() -> None:
    for replay in (True, False):
        source = Source(replay=replay)
        source.connect()
        source.publish()
        assert source.has(0)
        assert not source.follower.partial
        assert not source.counted("gap")


def test_truncated_history_is_detected() -> None:
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


def test_gap_missing_from_the_history_drops_everything() -> None:
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
    assert source.replay_starts == []


def test_a_late_start_without_replay_is_partial() -> None:
    source = Source(replay=False)
    source.publish(lost=True)
    source.connect()
    source.publish()
    assert source.has(1)
    assert source.follower.partial
    assert source.counted("joined_late")


@pytest.mark.parametrize("replay", [True, False])
def test_falling_sequence_numbers_mean_a_new_process(replay: bool) -> None:
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


def test_idle_poll_detects_a_silent_restart() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.publish()
    source.restart()
    source.wait()
    assert source.applied == []
    assert source.counted("poll", "restart_replay")


def test_restart_during_a_lost_connection_is_detected() -> None:
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


def test_reconnect_to_the_same_process_keeps_the_index() -> None:
    source = Source()
    source.connect()
    for _ in range(3):
        source.publish()
    source.follower.is_disconnected()
    source.publish(lost=True)
    source.connect()
    assert source.has(0, 1, 2, 3)
    assert not source.counted("restart_replay")


def test_unverifiable_reconnect_starts_anew() -> None:
    source = Source(buffer=1)
    source.connect()
    source.publish()
    source.follower.is_disconnected()
    source.publish(lost=True)
    source.connect()
    assert source.has(1)
    assert source.follower.partial
    assert source.counted("restart_replay")


def test_gap_across_a_restart_is_not_filled_from_another_process() -> None:
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


def test_lost_last_batch_is_found_while_idle() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.publish(lost=True)
    source.wait(IDLE_POLL_S - 0.1)
    assert source.has(0)
    source.wait(0.2)
    assert source.has(0, 1)
    assert source.counted("poll", "poll_found")


def test_lost_first_batch_is_found_while_idle() -> None:
    source = Source()
    source.connect()
    source.publish(lost=True)
    source.wait()
    assert source.has(0)


def test_no_polls_while_messages_arrive_or_without_replay() -> None:
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


def test_polls_do_not_delay_live_messages() -> None:
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
