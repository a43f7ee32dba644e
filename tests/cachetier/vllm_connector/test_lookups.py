"""Lookups: a result or a miss within the deadline, and no entries without a waiting request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from cachetier.vllm_connector import lookups
from cachetier.vllm_connector.lookups import LookupBoard
from tests.support.waiting import until

NEVER_S = 3600.0
Make = Callable[..., LookupBoard]


@pytest.fixture
def make() -> Iterator[Make]:
    boards: list[LookupBoard] = []

    def one(
        exists: Callable[[Sequence[bytes]], Sequence[bool]],
        s: float = NEVER_S,
        lane_of: Callable[[bytes], str] = lambda key: "only",
    ) -> LookupBoard:
        boards.append(LookupBoard(exists, lane_of, s))
        return boards[-1]

    yield one
    for board in boards:
        board.shutdown(5)


def known(board: LookupBoard, key: bytes, request: str = "r") -> bool:
    """Like vLLM: look up again at every step until there is a result."""

    def step() -> str:
        answer = board.ask(key, request)
        board.flush()
        return "" if answer is None else str(answer)

    return until(step, what=f"an answer about {key!r}") == "True"


def test_results_have_the_order_of_requests(make: Make) -> None:
    board = make(lambda keys: [key.startswith(b"y") for key in keys])
    wanted = {b"y1": True, b"n1": False, b"y2": True, b"n2": False}
    assert [board.ask(key, "r") for key in wanted] == [None] * 4
    assert {key: known(board, key) for key in wanted} == wanted


def test_step_is_one_round_trip_and_queries_a_key_once(make: Make) -> None:
    requests: list[list[bytes]] = []

    def exists(keys: Sequence[bytes]) -> list[bool]:
        requests.append(list(keys))
        return [True] * len(keys)

    board = make(exists)
    for request in ("r1", "r2"):
        for key in (b"a", b"b", b"c"):
            board.ask(key, request)
    assert known(board, b"a", "r1")
    assert known(board, b"c", "r2")
    assert requests == [[b"a", b"b", b"c"]]


def test_timeout_is_a_lasting_miss(make: Make) -> None:
    going_on = threading.Event()

    def exists(keys: Sequence[bytes]) -> list[bool]:
        going_on.wait(60)
        return [True] * len(keys)

    board = make(exists, 0.05)
    assert not known(board, b"a")
    assert board.timed_out == 1
    board._timeout_s = NEVER_S  # of the next question
    going_on.set()
    # The late "yes" arrives before the next question's answer does, and is dropped.
    assert known(board, b"b")
    assert board.ask(b"a", "r") is False
    assert board.timed_out == 1


@pytest.mark.parametrize("short", [True, False])
def test_cache_error_is_a_miss(make: Make, short: bool) -> None:
    def exists(keys: Sequence[bytes]) -> list[bool]:
        if short:
            raise RuntimeError("broken")
        return [False]

    board = make(exists)
    assert not known(board, b"a")
    assert not known(board, b"b")


def test_failed_load_is_a_miss_for_pending_lookups(make: Make) -> None:
    board = make(lambda keys: [True] * len(keys))
    assert known(board, b"a")
    board.mark_missing([b"a", b"unknown"])
    assert board.ask(b"a", "r") is False


def test_key_marked_missing_during_a_query_stays_missing(make: Make) -> None:
    going_on = threading.Event()

    def exists(keys: Sequence[bytes]) -> list[bool]:
        going_on.wait(60)
        return [True] * len(keys)

    board = make(exists)
    board.ask(b"a", "r")
    board.flush()
    board.mark_missing([b"a"])
    going_on.set()
    assert known(board, b"b")
    assert board.ask(b"a", "r") is False


def test_results_without_a_waiting_request_are_dropped(make: Make) -> None:
    board = make(lambda keys: [True] * len(keys))
    for number in range(500):
        request = str(number)
        board.ask(b"shared", request)
        board.ask(b"own %d" % number, request)
        board.flush()
        board.forget(request)
        board.forget("never seen")
    assert board._blocks == {}
    assert board._by_request == {}


def test_block_is_kept_while_one_of_two_requests_needs_it(make: Make) -> None:
    board = make(lambda keys: [True] * len(keys))
    board.ask(b"a", "r1")
    assert known(board, b"a", "r2")
    board.forget("r1")
    assert board.ask(b"a", "r2") is True
    board.forget("r2")
    assert board._blocks == {}


def test_late_response_does_not_change_a_newer_query(make: Make) -> None:
    """A key is looked up, abandoned and looked up again: the first answer is dropped."""
    rounds = [threading.Event(), threading.Event()]
    answers = iter(((rounds[0], True), (rounds[1], False)))

    def exists(keys: Sequence[bytes]) -> list[bool]:
        event, answer = next(answers)
        event.wait(60)
        return [answer] * len(keys)

    board = make(exists)
    board.ask(b"a", "r1")
    board.flush()
    board.forget("r1")
    assert board.ask(b"a", "r2") is None
    board.flush()
    rounds[0].set()
    until(lambda: not board._answers.empty(), what="the first answer")
    assert board.ask(b"a", "r2") is None
    rounds[1].set()
    assert not known(board, b"a", "r2")


# -- lanes: one a node of L2 -------------------------------------------------------------------
def first_letter(key: bytes) -> str:
    return key[:1].decode()


def test_silent_node_makes_only_its_blocks_misses(make: Make) -> None:
    going_on = threading.Event()

    def exists(keys: Sequence[bytes]) -> list[bool]:
        if keys[0].startswith(b"s"):
            going_on.wait(60)
        return [True] * len(keys)

    board = make(exists, NEVER_S, first_letter)
    for key in (b"s1", b"a1", b"s2", b"b1"):
        board.ask(key, "r")
    board.flush()
    assert known(board, b"a1")
    assert known(board, b"b1")
    assert known(board, b"a2"), "asked later, while the silent node still holds its thread"
    board._timeout_s = 0.0
    assert not known(board, b"s1")
    assert not known(board, b"s2")
    assert board.timed_out == 2
    going_on.set()


def test_each_node_is_queried_once_a_step_for_its_blocks(make: Make) -> None:
    requests: list[list[bytes]] = []

    def exists(keys: Sequence[bytes]) -> list[bool]:
        requests.append(list(keys))
        return [True] * len(keys)

    board = make(exists, NEVER_S, first_letter)
    for key in (b"a1", b"b1", b"a2", b"b2", b"c1"):
        board.ask(key, "r")
    for key in (b"a1", b"b2", b"c1"):
        assert known(board, key)
    assert sorted(requests) == [[b"a1", b"a2"], [b"b1", b"b2"], [b"c1"]]


def test_lanes_of_removed_nodes_are_dropped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "_IDLE_S", -1.0)
    board = make(lambda keys: [True] * len(keys), NEVER_S, lambda key: key.decode())
    for number in range(50):
        assert known(board, b"%d" % number)
    assert len(board._lanes) <= 1
    ours = [thread for thread in threading.enumerate() if thread.name == "emberline-lookup"]
    until(lambda: sum(thread.is_alive() for thread in ours) <= 1, what="their threads gone")
