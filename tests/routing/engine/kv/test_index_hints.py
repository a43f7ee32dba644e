"""Storage hints: bounded, and corrected when wrong."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from routing.engine.kv import index
from routing.engine.kv.index import count_blocks
from routing.engine.kv.wire import Stored
from tests.routing.engine.harness import until
from tests.routing.engine.kv.builders import BLOCK, Fleet, engine_hash, removed, stored
from tests.routing.engine.kv.event_worker import BLOCK as TOLD_BLOCK
from tests.routing.engine.kv.event_worker import KvEventWorker
from tests.routing.engine.kvaware.test_service import complete, explain, followed, kvaware_router

PROMPT = list(range(1, 10 * BLOCK + 1))
STORAGE = {"medium": "STORAGE", "locality": "REMOTE", "ownership": "l2"}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_oldest_hints_are_evicted_and_own_blocks_stay(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "HINTS_LIMIT", 10)
    fleet.report("w", stored(PROMPT, 0, 4), stored(PROMPT, **STORAGE))
    assert fleet.held(PROMPT)["w"] == (4 * BLOCK, 0, 6 * BLOCK)
    other = [number + 1000 for number in PROMPT]
    fleet.report("w", stored(other, 0, 7, **STORAGE))
    assert fleet.held(PROMPT)["w"] == (4 * BLOCK, 0, 0)  # in order: its first storage hint is gone
    assert fleet.ask(other).anywhere == 7 * BLOCK
    fleet.counted(stored=4 + 10 + 7, hint_forgotten=7)
    holder = fleet.index.ranks["w", 0].groups[0]
    assert len(holder.hints) == 10
    assert len(holder.blocks) == 4 + 3 + 7  # nothing is kept of blocks that no worker holds


def test_blocks_stored_are_reported_with_and_without_tokens(fleet: Fleet) -> None:
    found: list[int] = []
    fleet.index.rank("w", 0, "m").batch_at = 7.0

    def note(names: list[int], at: float) -> None:
        assert at == 7.0
        found.extend(names)

    fleet.index.observer = SimpleNamespace(stored_in_l2=note)  # type: ignore[assignment]
    fleet.report("w", stored(PROMPT, 0, 4), stored(PROMPT, **STORAGE))
    first = list(found)
    assert len(first) == 10
    bare = Stored(block_hashes=[engine_hash(PROMPT[:BLOCK])], group_idx=0, **STORAGE)
    fleet.report("w", bare)
    assert found == [*first, first[0]]
    other = [number + 1000 for number in PROMPT[:BLOCK]]
    bare = Stored(block_hashes=[engine_hash(other)], group_idx=0, **STORAGE)
    fleet.report("w", bare, stored(other))  # known by its tokens later
    assert len(found) == 12


def test_early_removal_is_no_error(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "HINTS_LIMIT", 3)
    fleet.report(
        "w", stored(PROMPT, 0, 3, **STORAGE), removed(PROMPT[: 3 * BLOCK], medium="STORAGE")
    )
    fleet.report("w", stored([5, 6, 7, 8], **STORAGE))
    assert fleet.ask(PROMPT).anywhere == 0
    assert fleet.applier.counts["hint_forgotten"] == 2


def test_denied_hint_is_removed_for_all_workers(fleet: Fleet) -> None:
    fleet.report("a", stored(PROMPT, 0, 2), stored(PROMPT, **STORAGE))
    fleet.report("b", stored(PROMPT, **STORAGE))
    assert fleet.ask(PROMPT).anywhere == 10 * BLOCK
    assert index.remove_hints(fleet.index, "c", fleet.names(PROMPT)[1:]) == 9
    assert fleet.ask(PROMPT).anywhere == BLOCK
    assert fleet.held(PROMPT)["a"] == (2 * BLOCK, 0, 0)
    assert index.remove_hints(fleet.index, "c", fleet.names(PROMPT)[1:]) == 0
    fleet.report("b", stored(PROMPT, **STORAGE))  # there again
    assert fleet.ask(PROMPT).anywhere == 10 * BLOCK


def test_own_storage_is_denied_for_its_worker_only(fleet: Fleet) -> None:
    fleet.report("a", stored(PROMPT, **{**STORAGE, "locality": "LOCAL"}))
    index.remove_hints(fleet.index, "b", fleet.names(PROMPT))
    assert fleet.held(PROMPT)["a"] == (0, 0, 10 * BLOCK)
    index.remove_hints(fleet.index, "a", fleet.names(PROMPT))
    assert fleet.held(PROMPT) == {}


def test_the_census_counts_by_worker_and_tier(fleet: Fleet) -> None:
    fleet.report("a", stored(PROMPT, 0, 4))
    assert count_blocks(fleet.index) == {"a": {"gpu": 4, "l1": 0, "l2": 0}}
    fleet.report("a", stored(PROMPT, medium="cpu"))
    fleet.report("b", stored(PROMPT, **STORAGE), stored(PROMPT, **{**STORAGE, "locality": "LOCAL"}))
    assert count_blocks(fleet.index)["a"] == {"gpu": 4, "l1": 10, "l2": 0}
    assert count_blocks(fleet.index)["b"]["l2"] == 10  # in whichever storage
    fleet.index.forget("a")
    assert set(count_blocks(fleet.index)) == {"b"}


def test_large_census_is_estimated_from_some_shards(fleet: Fleet) -> None:
    for number in range(200):
        fleet.report("a", stored([number + 7, *PROMPT[1:]], medium="CPU"))
    whole = count_blocks(fleet.index)["a"]["l1"]
    assert whole == 2000
    assert abs(count_blocks(fleet.index, most=500)["a"]["l1"] - whole) < 500


async def test_wrong_hint_is_removed_without_demoting_the_worker() -> None:
    async with KvEventWorker() as worker, kvaware_router(worker) as server:
        await followed(server, "w0")
        listening = server._kvaware.listening
        assert listening is not None
        prompts = [[n + 1000 * number for n in range(4 * TOLD_BLOCK + 1)] for number in range(1, 9)]
        for prompt in prompts:
            worker.publisher.publish(stored(prompt, block=TOLD_BLOCK, **STORAGE))
        await until(lambda: len(listening.subscriber.index) == 32, "all hints")
        worker.publishes = False
        for prompt in prompts:
            decision = await complete(server, prompt)
            assert decision["predicted_cached_tokens"] == 64
            assert decision["cached_tokens"] == 0
        assert len(listening.subscriber.index) == 0
        assert listening.routing.denied == 32
        meter = listening.routing.meters["w0"]
        assert (meter.lying, meter.demotions) == (False, 0)
        seen = await explain(server, prompts[0])
        assert seen["kv"]["workers"]["w0"]["told"] == 0
