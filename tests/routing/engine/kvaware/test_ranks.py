"""Several engines behind one address: each request names the least loaded rank."""

from __future__ import annotations

import asyncio
from typing import Any

from routing.engine.kvaware.ranks import Ranks
from routing.engine.server import RouterServer
from tests.routing.engine.harness import admin, ask, post, until
from tests.routing.engine.kv.builders import BLOCK, Fleet, stored
from tests.routing.engine.kv.event_worker import BLOCK as TOLD_BLOCK
from tests.routing.engine.kv.event_worker import KvEventWorker
from tests.routing.engine.kvaware.test_service import complete, kvaware_router

PROMPT = list(range(1, 10 * BLOCK + 2))


def ranks(count: int = 2, first: int = 0) -> tuple[Fleet, Ranks]:
    fleet = Fleet()
    for number in range(first, first + count):
        fleet.report("w", stored([number + 500] * BLOCK), rank=number)
    return fleet, Ranks(fleet.index)


def chains(fleet: Fleet, tokens: list[int]) -> dict[int, list[int]]:
    return {BLOCK: fleet.names(tokens)[: (len(tokens) - 1) // BLOCK]}


def test_rank_that_holds_the_prefix_is_named() -> None:
    fleet, choice = ranks()
    fleet.report("w", stored(PROMPT, 0, 6), rank=1)
    for _ in range(3):
        seat = choice.choose("w", chains(fleet, PROMPT), len(PROMPT))
        assert seat is not None
        assert (seat.line, seat.match.tokens) == (b"x-data-parallel-rank: 1\r\n", 6 * BLOCK)
        choice.pending.failed(seat.guess)
        choice.leave(seat)


def test_queued_work_of_a_rank_counts_against_it() -> None:
    fleet, choice = ranks()
    fleet.report("w", stored(PROMPT, 0, 6), rank=1)
    seats = [choice.choose("w", chains(fleet, [n] * 100), 100) for n in (1, 2, 3, 4)]
    assert sorted(seat.match.rank for seat in seats if seat) == [0, 0, 1, 1]
    busy = [seat for seat in seats if seat is not None]
    for seat in busy:
        if seat.match.rank == 0:
            choice.leave(seat)
    found = choice.choose("w", chains(fleet, PROMPT), len(PROMPT))
    assert found is not None
    assert found.match.rank == 0  # computing it all is less than waiting
    for seat in (*busy, found):
        choice.leave(seat)
    assert choice._work == {}


def test_blocks_in_transit_count_as_present_until_their_worker_leaves() -> None:
    fleet, choice = ranks(4)
    first = choice.choose("w", chains(fleet, PROMPT), len(PROMPT))
    assert first is not None
    assert not first.guessed
    choice.leave(first)  # answered, and not reported yet
    for _ in range(3):
        again = choice.choose("w", chains(fleet, PROMPT), len(PROMPT))
        assert again is not None
        assert (again.match.rank, again.guessed) == (first.match.rank, True)
        choice.leave(again)
    busy = choice.choose("w", chains(fleet, PROMPT), len(PROMPT))
    choice.forget("w")
    assert len(choice.pending) == 0
    assert busy is not None
    fresh = choice.choose("w", chains(fleet, PROMPT), len(PROMPT))
    assert fresh is not None
    assert not fresh.guessed


def test_no_rank_is_named_for_one_rank_or_ambiguous_numbers() -> None:
    fleet, choice = ranks(1)
    assert choice.choose("w", chains(fleet, PROMPT), len(PROMPT)) is None
    fleet, choice = ranks(2, first=2)  # this node's share of a larger group
    assert choice.choose("w", chains(fleet, PROMPT), len(PROMPT)) is None
    fleet, choice = ranks(2)
    fleet.report("alone", stored(PROMPT))
    assert choice.choose("alone", chains(fleet, PROMPT), len(PROMPT)) is None
    assert choice.choose("nobody", chains(fleet, PROMPT), len(PROMPT)) is None


def test_shared_storage_counts_at_each_rank() -> None:
    fleet, choice = ranks()
    fleet.report("other", stored(PROMPT, medium="STORAGE", locality="REMOTE"))
    seat = choice.choose("w", chains(fleet, PROMPT), len(PROMPT))
    assert seat is not None
    assert (seat.match.gpu, seat.match.l2) == (0, 10 * BLOCK)


# -- in a running router


async def both_followed(server: RouterServer) -> Any:
    listening = server._kvaware.listening
    assert listening is not None
    await until(lambda: listening.subscriber.ranks("w0") == 2, "both ranks followed")
    await until(lambda: listening.routing.telling and listening.routing.tokens, "in use")
    return listening


async def test_requests_reach_their_rank_and_predictions_are_per_rank() -> None:
    async with KvEventWorker(ranks=2) as worker, kvaware_router(worker) as server:
        listening = await both_followed(server)
        prompts = [[n + 1000 * k for n in range(6 * TOLD_BLOCK + 1)] for k in range(1, 6)]
        for prompt in prompts:
            await complete(server, prompt)
        await until(lambda: sum(r.blocks for r in listening.subscriber.index.ranks.values()) == 30)
        assert set(worker.answered_by) <= {0, 1}
        homes = dict(zip(range(5), worker.answered_by, strict=True))
        for number in (3, 1, 4, 0, 2):
            again = await complete(server, prompts[number])
            assert worker.answered_by[-1] == homes[number]
            assert again["predicted_cached_tokens"] == again["cached_tokens"] == 6 * TOLD_BLOCK
        assert listening.routing.ranks._work == {}


async def test_prediction_is_for_the_named_rank() -> None:
    """Another one holds it, and has too much to do."""
    async with KvEventWorker(ranks=2) as worker, kvaware_router(worker) as server:
        listening = await both_followed(server)
        prompt = [n + 1000 for n in range(6 * TOLD_BLOCK + 1)]
        await complete(server, prompt)
        home = worker.answered_by[-1]
        await until(lambda: sum(r.blocks for r in listening.subscriber.index.ranks.values()) == 6)
        listening.routing.ranks._work["w0"] = [100_000 * (rank == home) for rank in range(2)]
        listening.routing.ranks.pending.forget(f"w0\n{home}")
        decision = await complete(server, prompt)
        assert worker.answered_by[-1] != home
        assert decision["predicted_cached_tokens"] == decision["cached_tokens"] == 0
        assert decision["candidates"][0]["matched"] == {"gpu": 0, "l1": 0, "l2": 0}


async def test_rank_chosen_by_the_caller_is_kept() -> None:
    async with KvEventWorker(ranks=2) as worker, kvaware_router(worker) as server:
        await both_followed(server)
        await complete(server, PROMPT * 4)
        home = worker.answered_by[-1]
        body = {"model": "m", "prompt": PROMPT * 4, "max_tokens": 1}
        other = {"x_data_parallel_rank": str(1 - home)}
        assert (await ask(server, post(body, "/v1/completions", **other))).status == 200
        assert worker.answered_by[-1] == 1 - home
        assert worker.requests[-1].headers["x-data-parallel-rank"] == str(1 - home)


async def test_abandoned_request_releases_its_rank() -> None:
    async with KvEventWorker(ranks=2) as worker, kvaware_router(worker) as server:
        listening = await both_followed(server)
        await complete(server, PROMPT * 4)  # a size of blocks is known

        def hang_up(_body: dict[str, Any]) -> None:
            raise ConnectionResetError

        worker.before = hang_up
        body = {"model": "m", "prompt": [5, *PROMPT * 4], "max_tokens": 1}
        assert (await ask(server, post(body, "/v1/completions"))).status >= 500
        assert listening.routing.ranks._work == {}
        await asyncio.sleep(0)
        assert (await admin(server, "/index")).json["kv"]["telling"]
