"""Failing and interrupted replays, and restarted workers."""

from __future__ import annotations

import itertools

import pytest

from routing.engine.kv import recovery
from routing.engine.kv.recovery import BACKOFF_LONGEST_S, REPLAY_TIMEOUT_S, RESUME_S, RecoveryPhase
from tests.routing.engine.kv.publisher import Source


def test_unanswered_replay_is_abandoned_and_retried() -> None:
    source = Source()
    source.publish(lost=True)
    source.answering = False
    source.connect()
    source.publish()
    source.wait(REPLAY_TIMEOUT_S)
    assert source.has(1)  # live at least
    assert source.follower.partial
    assert source.counted("replay_timeout", "joined_late")
    source.replay_starts.clear()
    source.answering = True
    source.wait(BACKOFF_LONGEST_S)
    assert source.has(0, 1)
    assert not source.follower.partial
    assert source.counted("rebuild")


def test_retry_delays_grow_and_are_bounded() -> None:
    source = Source()
    source.publish(lost=True)
    source.answering = False
    source.connect()
    source.publish()
    requests: list[float] = []
    rebuilds = 0
    while source.now < 400:
        source.wait(0.5)
        if source.follower.counts["rebuild"] > rebuilds:
            rebuilds += 1
            requests.append(source.now)
    waits = [later - before for before, later in itertools.pairwise(requests)]
    assert waits == sorted(waits)
    assert waits[0] < 12
    assert waits[-1] >= BACKOFF_LONGEST_S
    assert max(waits) <= BACKOFF_LONGEST_S + REPLAY_TIMEOUT_S + 1


def test_live_messages_flow_before_a_rebuild_starts() -> None:
    source = Source()
    source.publish(lost=True)
    source.answering = False
    source.connect()
    source.publish()
    source.wait(REPLAY_TIMEOUT_S)
    while not source.counted("rebuild"):
        source.wait(1)
    source.publish()
    assert source.has(1, 2)


def test_live_messages_are_buffered_during_a_rebuild() -> None:
    source = Source()
    source.publish(lost=True)
    source.answering = False
    source.connect()
    source.publish()
    source.wait(REPLAY_TIMEOUT_S)
    while not source.counted("rebuild"):
        source.wait(1)
    source.follower.replayed(*source.buffer[0], source.now)
    source.publish()
    assert source.has(0)
    source.follower.replayed(*source.buffer[1], source.now)
    source.follower.replay_ended(source.now)
    assert source.has(0, 1, 2)
    assert not source.counted("gap")


def test_interrupted_rebuild_is_retried() -> None:
    source = Source()
    source.publish(lost=True)
    source.answering = False
    source.connect()
    source.publish()
    source.wait(REPLAY_TIMEOUT_S)
    while not source.counted("rebuild"):
        source.wait(1)
    sockets = source.sockets
    source.publish(lost=True)
    source.publish()  # a gap comes first
    assert source.sockets == sockets + 1  # answers to the rebuild are not taken for the gap's
    source.answering = True
    source.answer()
    assert source.has(1, 2, 3)
    source.wait(1)
    assert source.has(0, 1, 2, 3)


def test_rebuild_with_less_history_is_discarded() -> None:
    source = Source(buffer=2)
    source.publish(lost=True)
    source.answering = False
    source.connect()
    for _ in range(3):
        source.publish()
    source.wait(REPLAY_TIMEOUT_S)
    assert source.has(1, 2, 3)
    source.replay_starts.clear()
    source.answering = True
    source.wait(BACKOFF_LONGEST_S)
    assert source.has(1, 2, 3)
    assert source.counted("rebuild_useless")


def test_connection_that_stays_unverified_drops_everything() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.follower.is_disconnected()
    source.answering = False
    source.connect()
    assert source.has(0)
    source.wait(REPLAY_TIMEOUT_S)
    assert source.applied == []
    assert source.follower.partial
    assert source.counted("gap_lost")


def test_gap_with_unanswered_replay_drops_everything() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.answering = False
    source.publish(lost=True)
    source.publish()
    source.wait(REPLAY_TIMEOUT_S)
    assert source.has(2)
    assert source.follower.partial
    assert source.counted("gap_lost")


def test_interrupted_replay_is_continued() -> None:
    source = Source()
    for _ in range(4):
        source.publish(lost=True)
    source.answering = False
    source.connect()
    for number, payload in list(source.buffer)[:2]:
        source.follower.replayed(number, payload, source.now)
    source.replay_starts.clear()
    source.now += RESUME_S
    source.follower.tick(source.now)
    assert source.replay_starts == [1]
    source.answering = True
    source.answer()
    assert source.has(0, 1, 2, 3)
    assert not source.follower.partial


def test_gap_in_a_replay_is_requested_again() -> None:
    source = Source()
    for _ in range(6):
        source.publish(lost=True)
    source.lose_replayed = {2, 3}
    source.follower.is_connected(source.now)
    start = source.replay_starts.pop()
    assert start == 0
    for number in (0, 1, 4):
        source.follower.replayed(number, dict(source.buffer)[number], source.now)
    assert source.has(0, 1)
    assert source.replay_starts == [1]  # at once, as the end may be lost too
    source.lose_replayed = set()
    source.answer()
    assert source.has(0, 1, 2, 3, 4, 5)
    assert source.counted("replay_hole")


def test_gap_that_never_closes_ends_in_a_fresh_start() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.lose_replayed = {1}
    source.publish(lost=True)
    source.publish()
    source.answer()
    assert source.has(2)
    assert source.follower.partial


def test_a_new_connection_without_replay_starts_anew() -> None:
    source = Source(replay=False)
    source.connect()
    source.publish()
    source.restart()
    source.publish(lost=True)
    source.connect()
    source.publish()  # number 1 after 0, of another process
    assert source.has(1)
    assert source.counted("restart_unverified")


def test_ended_process_is_cleared_and_its_last_messages_ignored() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.follower.is_lost()
    assert source.applied == []
    assert source.follower.phase is RecoveryPhase.WAITING
    source.publish()
    assert source.applied == []
    assert source.counted("lost", "while_waiting")
    source.restart()
    source.publish(lost=True)
    source.follower.is_back(source.now)
    source.answer()
    assert source.has(0)


def test_restarted_worker_waits_for_its_socket() -> None:
    source = Source()
    source.connect()
    source.follower.is_lost()
    source.follower.is_disconnected()
    source.follower.is_back(source.now)
    assert source.replay_starts == []
    source.restart()
    source.connect()
    assert source.follower.phase is RecoveryPhase.FOLLOWING


def test_changed_start_time_means_a_new_process() -> None:
    source = Source()
    source.connect()
    source.follower.process_started(1000.0, source.now)
    source.publish()
    source.follower.process_started(1000.2, source.now)
    assert source.has(0)
    source.restart()
    source.follower.process_started(2000.0, source.now)
    source.answer()
    assert source.applied == []
    assert source.counted("restart_process")
    # Known already by its numbers: not once more.
    source.publish()
    source.publish()
    source.restart()
    source.publish()
    source.answer()
    source.follower.process_started(3000.0, source.now)
    assert source.has(0)
    assert source.follower.counts["restart_process"] == 1


def test_own_reset_clears_the_index_at_once() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.follower.was_reset()
    assert source.applied == []
    source.publish()
    assert source.has(1)
    assert not source.counted("gap")


def test_message_buffer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "HELD_MESSAGES", 3)
    source = Source()
    source.answering = False
    source.connect()
    for _ in range(6):
        source.publish()
    assert source.follower.counts["held_overflow"] == 3
    source.answering = True
    source.answer()
    assert source.has(0, 1, 2, 3, 4, 5)
    monkeypatch.setattr(recovery, "HELD_BYTES", 2)
    source = Source()
    source.answering = False
    source.connect()
    source.publish()
    assert source.follower.counts["held_overflow"] == 1


def test_unsolicited_replies_are_counted() -> None:
    source = Source()
    source.connect()
    source.follower.replayed(7, b"x", source.now)
    source.follower.replay_ended(source.now)
    assert source.applied == []
    assert source.follower.counts["replay_stray"] == 2
