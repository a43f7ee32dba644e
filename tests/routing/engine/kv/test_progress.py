"""Remaining work of a worker's prompts, from its events."""

from __future__ import annotations

import pytest

from routing.engine.fleet.load import RequestCharge
from routing.engine.kv.events import EventApplier
from routing.engine.kv.progress import GRACE_S, ExpectedBlocks, Progress
from routing.engine.policies.kvaware import KvAware
from tests.routing.engine.fleet.test_load import workers
from tests.routing.engine.kv.builders import BLOCK, CLEARED, Fleet, removed, stored

PROMPT = list(range(1, 10 * BLOCK + 2))
OTHER = list(range(500, 500 + 10 * BLOCK + 2))


class Room:
    def __init__(self) -> None:
        self.events = Fleet()
        self.progress = Progress(self.events.index)
        self.worker = workers(1)[0]
        self.name = self.worker.id
        # Reported by vLLM before: the size of its blocks.
        self.events.report(self.name, stored(OTHER, 0, 1))

    def sent(self, tokens: list[int], uncached: int | None = None) -> RequestCharge:
        charge = RequestCharge(self.worker, len(tokens) if uncached is None else uncached)
        self.prompt = self.progress.begins(
            self.name, {BLOCK: self.events.names(tokens)}, len(tokens), charge
        )
        return charge

    def publish(self, *events: object, worker: str = "") -> None:
        self.events.report(worker or self.name, *events)  # type: ignore[arg-type]  # any event
        self.progress.advance_worker(worker or self.name)


@pytest.fixture
def room() -> Room:
    return Room()


def test_emptied_cache_ends_what_was_expected_of_answered_prompts() -> None:
    events, policy = Fleet(), KvAware(100, b"s")
    events.index, events.applier = policy.index, EventApplier(policy.index)
    expected = policy.pending
    old, new, other = ({BLOCK: names} for names in ([1, 2], [3, 4], [5, 6]))
    expected.answered(expected.sent("a", old), 0.0)
    expected.sent("a", new)  # under way: it is computed after the reset
    expected.answered(expected.sent("b", other), 0.0)
    events.report("a", CLEARED)
    found = [expected.matched(one) for one in (old, new, other)]
    assert found == [{}, {"a": 2 * BLOCK}, {"b": 2 * BLOCK}]
    expected.tick(100.0)
    assert expected.matched(other) == {}


def test_request_of_an_earlier_strategy_changes_no_expectation() -> None:
    """A changed strategy begins anew, with requests in flight."""
    before, after = ExpectedBlocks(), ExpectedBlocks()
    old, new = before.sent("w", {16: [1, 2]}), after.sent("w", {16: [1, 2]})
    after.answered(old, 0.0)
    after.tick(GRACE_S)
    after.failed(old)
    assert after.matched({16: [1, 2]}) == {"w": 32}
    after.failed(new)
    after.failed(new)
    after.failed(old)
    assert len(after) == 0


def test_evicted_block_ends_what_was_expected_of_answered_prompts() -> None:
    events, policy = Fleet(), KvAware(100, b"s")
    events.index, events.applier = policy.index, EventApplier(policy.index)
    expected = policy.pending
    prompts = [list(range(start, start + 3 * BLOCK + 1)) for start in (1, 200, 400)]
    evicted, waiting, other = ({BLOCK: events.names(tokens)} for tokens in prompts)
    for chains in (evicted, other):
        expected.answered(expected.sent("a", chains), 0.0)
    expected.answered(expected.sent("b", evicted), 0.0)
    expected.sent("a", waiting)  # under way: it may be computed after the eviction
    for tokens in prompts:
        events.report("a", stored(tokens, 0, 3))
    assert set(expected.matched(evicted)) == {"a", "b"}
    for tokens in prompts[:2]:
        events.report("a", removed(tokens[: 3 * BLOCK]))
    found = [expected.matched(one) for one in (evicted, waiting, other)]
    assert found == [{"b": 3 * BLOCK}, {"a": 3 * BLOCK}, {"a": 3 * BLOCK}]
    expected.tick(100.0)
    assert expected.matched(other) == {}


def test_remaining_work_falls_with_each_step_of_a_long_prompt(room: Room) -> None:
    charge = room.sent(PROMPT)
    assert room.worker.backlog == 10 * BLOCK + 1
    room.publish(stored(PROMPT, 0, 4))
    assert room.worker.backlog == 6 * BLOCK + 1
    before = room.worker.load
    room.publish(stored(PROMPT, 4, 6))
    assert room.worker.backlog == 1  # the last token comes with the first byte
    assert room.worker.load < before
    charge.end()
    assert (room.worker.backlog, room.worker.load) == (0, 0)


def test_cached_tokens_are_not_counted_twice(room: Room) -> None:
    room.events.report(room.name, stored(PROMPT, 0, 4))
    room.sent(PROMPT, 6 * BLOCK + 1)
    room.publish(stored(OTHER, 1, 2))
    assert room.worker.backlog == 6 * BLOCK + 1
    room.publish(stored(PROMPT, 4, 1))
    assert room.worker.backlog == 5 * BLOCK + 1


def test_blocks_being_computed_elsewhere_do_not_become_work_again(room: Room) -> None:
    room.sent(PROMPT)
    room.sent(PROMPT, 1)  # it will find what the first one brings
    room.publish(stored(PROMPT, 0, 4))
    assert room.worker.backlog == 6 * BLOCK + 1 + 1


def test_requests_for_the_same_blocks_share_progress(room: Room) -> None:
    room.sent(PROMPT)
    room.sent(PROMPT)
    room.publish(stored(PROMPT, 0, 5))
    assert room.worker.backlog == 2 * (5 * BLOCK + 1)


def test_other_workers_and_finished_requests_change_no_progress(room: Room) -> None:
    charge = room.sent(PROMPT)
    room.publish(stored(PROMPT), worker="other")
    assert room.worker.backlog == 10 * BLOCK + 1
    charge.answered()
    room.progress.ends(room.prompt)
    room.progress.ends(room.prompt)
    room.publish(stored(PROMPT))
    assert (room.worker.backlog, len(room.progress)) == (0, 0)


def test_evicted_block_does_not_undo_progress(room: Room) -> None:
    room.sent(PROMPT)
    room.publish(stored(PROMPT, 0, 5))
    room.publish(removed(PROMPT[: 5 * BLOCK]))
    room.publish(stored(PROMPT, 4, 2))
    assert room.worker.backlog == 4 * BLOCK + 1
    room.publish(CLEARED)
    assert room.worker.backlog == 4 * BLOCK + 1


def test_blocks_in_host_memory_are_no_progress(room: Room) -> None:
    """They have to be loaded, which is reported as blocks on the device."""
    room.sent(PROMPT)
    room.publish(stored(PROMPT, 0, 5, medium="CPU"))
    assert room.worker.backlog == 10 * BLOCK + 1


def test_worker_without_events_reports_no_progress(room: Room) -> None:
    room.sent(PROMPT)
    room.progress.advance_worker("nobody")
    assert room.worker.backlog == 10 * BLOCK + 1
