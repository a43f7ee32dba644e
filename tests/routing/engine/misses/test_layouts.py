"""The saving of another layout: what the replay estimates is what the other layout then saves."""

from __future__ import annotations

from routing.engine.misses.layouts import (
    TEMPLATES_KEPT,
    TEMPLATES_SUMMED,
    EarlyChange,
    LayoutReplay,
    LayoutTotals,
)
from routing.engine.server import RouterServer
from tests.routing.engine.harness import admin, router
from tests.routing.engine.misses.test_ledger import send, text
from tests.support.cached_worker import BLOCK, CachedWorker

RULES, QUESTIONS = text(1, 3000), [text(100 + number, 300) for number in range(8)]


def times(number: int) -> str:
    return f"Now: 2026-11-22 10:0{number}\n"


async def templates(server: RouterServer) -> list[dict[str, object]]:
    hours = (await admin(server, "/misses")).json["slots"]
    return [one for hour in hours for one in hour["templates"].values()]


async def test_estimated_saving_is_what_the_other_layout_saves() -> None:
    async with CachedWorker() as one, router(one) as server:
        for number, question in enumerate(QUESTIONS):
            await send(server, times(number) + RULES + question)
        found = await templates(server)  # two, if the hour changed meanwhile
        before = one.computed
    async with CachedWorker() as one, router(one) as server:
        for number, question in enumerate(QUESTIONS):
            await send(server, RULES + times(number) + question)
        assert not await templates(server), "a stable layout needs no advice"
        saved = before - one.computed
    requests, estimated = (
        sum(int(str(each[name])) for each in found) for name in ("requests", "saved_tokens")
    )
    assert requests == len(QUESTIONS) - 1
    # The replay has no record of the first request, and a block may be cut.
    stable = len(RULES) // 4
    assert 0 <= saved - estimated <= stable + len(QUESTIONS) * 2 * BLOCK
    assert estimated > 5 * (stable - 2 * BLOCK)
    assert [each["changed_offset"] for each in found] == [0] * len(found)


async def test_the_prefix_of_a_corrected_template_shows_its_requests() -> None:
    async with CachedWorker() as one, router(one) as server:
        for number, question in enumerate(QUESTIONS):
            await send(server, times(number) + RULES + question)
        for number, question in enumerate(QUESTIONS):
            await send(server, RULES + times(number) + question)
        hours = (await admin(server, "/misses")).json["slots"]  # the latest first
        seen = [(code, one["prefix"]) for hour in hours for code, one in hour["templates"].items()]
        assert len({code for code, _ in seen}) == 1, "the other layout is the same template"
        prefix = seen[0][1]
        assert sum(hour["prefix_requests"].get(prefix, 0) for hour in hours) == len(QUESTIONS)


def change(template: int = 1, stable: int = 100) -> EarlyChange:
    return EarlyChange(template, {"changed_id": 90}, 0, stable, "text", "d1", 7)


def test_nothing_is_saved_on_a_new_worker_or_after_blocks_are_gone() -> None:
    replay = LayoutReplay()
    assert replay.save(change(), 1, 16, 0.0) == 0
    assert replay.save(change(), 1, 16, 1.0) == 90
    assert replay.save(change(stable=50), 1, 16, 2.0) == 48
    assert replay.save(change(), 2, 16, 2.0) == 0, "another worker, or it lost its cache"
    replay.evicted(10.0)
    assert replay.save(change(), 1, 16, 11.0) == 90
    assert replay.save(change(), 1, 16, 22.0) == 0


def test_memory_is_bounded() -> None:
    replay, slot = LayoutReplay(), LayoutTotals()
    for number in range(1, 3 * TEMPLATES_KEPT):
        slot.add(change(number), replay.save(change(number), 1, 16, 0.0))
    assert len(slot.show(str)) == TEMPLATES_SUMMED
    assert replay.save(change(1), 1, 16, 1.0) == 0
