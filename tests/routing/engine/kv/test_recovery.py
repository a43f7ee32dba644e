"""The eight steps of recovery, against a publisher which behaves as vLLM's does.

A payload here is b"process:number", so that what was applied can be read off.
"""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.kv import recovery
from routing.engine.kv.recovery import (
    BACKOFF_LONGEST_S,
    IDLE_POLL_S,
    REPLAY_TIMEOUT_S,
    Follower,
    Phase,
)


class Source:
    """A publisher, two lossy channels and a follower; time only moves by `wait`."""

    def __init__(self, buffer: int = 10_000, replay: bool = True) -> None:
        self.process = 1
        self.number = 0
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer)
        self.asked: list[int] = []
        self.sockets = 0
        self.answering = True
        self.lose_replayed: set[int] = set()
        self.now = 100.0
        self.applied: list[bytes] = []
        self.follower = Follower(self, replay)

    # what the follower orders

    def apply(self, payload: bytes, live: bool) -> None:
        self.applied.append(payload)

    def clear(self, waiting_too: bool) -> None:
        self.applied.clear()

    def replay(self, start: int, fresh: bool) -> None:
        if fresh:
            self.asked.clear()
            self.sockets += 1
        self.asked.append(start)

    # what happens

    def connect(self) -> None:
        self.follower.is_connected(self.now)
        self.answer()

    def publish(self, *, lost: bool = False) -> tuple[int, bytes]:
        message = (self.number, b"%d:%d" % (self.process, self.number))
        self.buffer.append(message)
        self.number += 1
        if not lost:
            self.follower.live(*message, self.now)
        return message

    def answer(self) -> None:
        """Serve what was asked for, until nothing is asked any more."""
        while self.asked and self.answering:
            start, socket = self.asked.pop(0), self.sockets
            for number, payload in list(self.buffer):
                if number >= start and number not in self.lose_replayed:
                    self.follower.replayed(number, payload, self.now)
                    if self.sockets != socket:
                        break  # what comes by the old one is not heard
            else:
                self.follower.replay_ended(self.now)

    def restart(self) -> None:
        self.process += 1
        self.number = 0
        self.buffer.clear()

    def wait(self, seconds: float = IDLE_POLL_S) -> None:
        self.answer()
        self.now += seconds
        self.follower.tick(self.now)
        self.answer()

    def has(self, *numbers: int) -> bool:
        return self.applied == [b"%d:%d" % (self.process, number) for number in numbers]

    def counted(self, *reasons: str) -> bool:
        return all(self.follower.counts[reason] for reason in reasons)


def test_history_first_then_what_came_live_meanwhile() -> None:
    source = Source()
    for _ in range(3):
        source.publish(lost=True)
    source.follower.is_connected(source.now)
    assert source.asked == [0]
    source.publish()
    assert source.applied == []  # held back
    assert source.follower.phase is Phase.CATCHING_UP
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


def test_a_replay_which_never_answers_is_given_up_and_tried_again() -> None:
    source = Source()
    source.publish(lost=True)
    source.answering = False
    source.connect()
    source.publish()
    source.wait(REPLAY_TIMEOUT_S)
    assert source.has(1)  # live at least
    assert source.follower.partial
    assert source.counted("replay_timeout", "joined_late")
    source.asked.clear()
    source.answering = True
    source.wait(BACKOFF_LONGEST_S)
    assert source.has(0, 1)
    assert not source.follower.partial
    assert source.counted("rebuild")


def test_waits_between_attempts_grow_and_are_bounded() -> None:
    source = Source()
    source.publish(lost=True)
    source.answering = False
    source.connect()
    source.publish()
    asked: list[float] = []
    rebuilds = 0
    while source.now < 400:
        source.wait(0.5)
        if source.follower.counts["rebuild"] > rebuilds:
            rebuilds += 1
            asked.append(source.now)
    waits = [later - before for before, later in itertools.pairwise(asked)]
    assert waits == sorted(waits)
    assert waits[0] < 12
    assert waits[-1] >= BACKOFF_LONGEST_S
    assert max(waits) <= BACKOFF_LONGEST_S + REPLAY_TIMEOUT_S + 1


def test_live_messages_flow_while_a_rebuild_is_awaited() -> None:
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


def test_live_messages_wait_while_a_rebuild_comes_in() -> None:
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


def test_a_rebuild_which_was_interrupted_is_not_given_up() -> None:
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


def test_a_rebuild_which_knows_less_is_not_taken() -> None:
    source = Source(buffer=2)
    source.publish(lost=True)
    source.answering = False
    source.connect()
    for _ in range(3):
        source.publish()
    source.wait(REPLAY_TIMEOUT_S)
    assert source.has(1, 2, 3)
    source.asked.clear()
    source.answering = True
    source.wait(BACKOFF_LONGEST_S)
    assert source.has(1, 2, 3)
    assert source.counted("rebuild_useless")


def test_a_connection_that_is_never_verified_drops_everything() -> None:
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


def test_a_gap_whose_replay_never_answers_drops_everything() -> None:
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


def test_a_replay_which_breaks_off_is_continued() -> None:
    source = Source()
    for _ in range(4):
        source.publish(lost=True)
    source.answering = False
    source.connect()
    for number, payload in list(source.buffer)[:2]:
        source.follower.replayed(number, payload, source.now)
    source.asked.clear()
    source.now += REPLAY_TIMEOUT_S
    source.follower.tick(source.now)
    assert source.asked == [1]
    source.answering = True
    source.answer()
    assert source.has(0, 1, 2, 3)
    assert not source.follower.partial


def test_a_hole_in_a_replay_is_asked_for_again() -> None:
    source = Source()
    for _ in range(6):
        source.publish(lost=True)
    source.lose_replayed = {2, 3}
    source.follower.is_connected(source.now)
    start = source.asked.pop()
    assert start == 0
    for number, payload in source.buffer:
        if number not in source.lose_replayed:
            source.follower.replayed(number, payload, source.now)
    source.follower.replay_ended(source.now)
    assert source.has(0, 1)
    source.lose_replayed = set()
    source.answer()
    assert source.has(0, 1, 2, 3, 4, 5)
    assert source.counted("replay_hole")


def test_a_hole_that_never_closes_ends_in_a_fresh_start() -> None:
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


def test_a_lost_process_holds_nothing_and_its_last_words_do_not_count() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.follower.is_lost()
    assert source.applied == []
    assert source.follower.phase is Phase.WAITING
    source.publish()
    assert source.applied == []
    assert source.counted("lost", "while_waiting")
    source.restart()
    source.publish(lost=True)
    source.follower.is_back(source.now)
    source.answer()
    assert source.has(0)


def test_a_worker_which_is_back_before_its_socket_waits_for_it() -> None:
    source = Source()
    source.connect()
    source.follower.is_lost()
    source.follower.is_disconnected()
    source.follower.is_back(source.now)
    assert source.asked == []
    source.restart()
    source.connect()
    assert source.follower.phase is Phase.FOLLOWING


def test_another_start_time_is_another_process() -> None:
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


def test_our_own_reset_empties_at_once_and_goes_on() -> None:
    source = Source()
    source.connect()
    source.publish()
    source.follower.was_reset()
    assert source.applied == []
    source.publish()
    assert source.has(1)
    assert not source.counted("gap")


def test_what_is_held_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_answers_to_nobody_are_counted() -> None:
    source = Source()
    source.connect()
    source.follower.replayed(7, b"x", source.now)
    source.follower.replay_ended(source.now)
    assert source.applied == []
    assert source.follower.counts["replay_stray"] == 2


STEPS = st.lists(
    st.sampled_from(
        ["publish"] * 8
        + ["publish_lost"] * 3
        + ["restart", "reconnect", "answer", "answer", "answer", "wait", "silence", "lost", "late"]
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([1, 3, 10_000]), st.booleans())
def test_whatever_happens_the_index_is_a_true_suffix_of_one_process(
    steps: list[str], buffer: int, replay: bool
) -> None:
    source = Source(buffer, replay)
    source.connect()
    for step in steps:
        if step == "publish":
            source.publish()
        elif step == "publish_lost":
            source.publish(lost=True)
        elif step == "restart":
            source.restart()
            source.follower.is_disconnected()
            source.follower.is_connected(source.now)
        elif step == "reconnect":
            source.follower.is_disconnected()
            source.follower.is_connected(source.now)
        elif step == "answer":
            source.answer()
        elif step == "wait":
            source.wait(1.0)
        elif step == "silence":
            source.answering = False
            source.wait(REPLAY_TIMEOUT_S)
            source.asked.clear()
            source.answering = True
        elif step == "lost":
            source.restart()
            source.follower.is_lost()
            source.follower.is_back(source.now)
        else:
            source.wait(0.1)
        _check(source)
    for _ in range(12):
        source.wait(BACKOFF_LONGEST_S)
        _check(source)
    if replay:
        # Quiet: all there is to know is known.
        first = source.number - len(source.applied)
        assert source.has(*range(first, source.number))
        assert len(source.applied) >= min(buffer, source.number)
        assert source.follower.partial == (first > 0)
    else:
        source.publish()
        assert source.applied[-1] == b"%d:%d" % (source.process, source.number - 1)
        _check(source)


def _check(source: Source) -> None:
    """One process, and no hole."""
    found = [tuple(map(int, payload.split(b":"))) for payload in source.applied]
    assert len({process for process, _ in found}) <= 1
    numbers = [number for _, number in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    assert source.follower.partial or not numbers or numbers[0] == 0 or not found
