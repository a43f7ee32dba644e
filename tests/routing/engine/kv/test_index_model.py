"""The index equals a naive model under any sequence of events."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.kv.wire import Event
from tests.routing.engine.kv.builders import BLOCK, CLEARED, Fleet, removed, stored
from tests.routing.engine.kv.naive import Naive

WORKERS = ("a", "b")
# Two prompts which share their first half, and all their beginnings: much meets on few blocks.
LONG = ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 9, 9, 9])
PROMPTS = st.tuples(st.sampled_from(LONG), st.integers(1, 4)).map(
    lambda drawn: drawn[0][: drawn[1] * BLOCK]
)
MEDIA = st.sampled_from(["GPU", "GPU", "GPU", "CPU", "STORAGE"])
LOCALITY = st.sampled_from([None, "LOCAL", "REMOTE"])


@st.composite
def event_cases(draw: st.DrawFn) -> tuple[str, int, Event]:
    """One event, in any order: orphans, duplicates and removals of nothing among them."""
    worker, rank = draw(st.sampled_from(WORKERS)), draw(st.sampled_from([0, 0, 0, 1]))
    prompt = draw(PROMPTS)
    salt = draw(st.sampled_from(["", "", "", "t"]))
    medium, group = draw(MEDIA), draw(st.sampled_from([0, 0, 0, 1]))
    kind = draw(st.integers(0, 14))
    if kind == 0:
        return worker, rank, CLEARED
    if kind < 7:
        return worker, rank, removed(prompt, salt=salt, medium=medium, group=group)
    first = draw(st.integers(0, len(prompt) // BLOCK - 1))
    more: dict[str, Any] = {"medium": medium, "group_idx": group}
    if medium == "STORAGE":
        more["locality"] = draw(LOCALITY)
    if medium != "GPU" and draw(st.booleans()):
        more["extra_keys"] = None
    return worker, rank, stored(prompt, first, salt=salt, **more)


STEPS = st.lists(
    st.one_of(*[event_cases()] * 12, st.sampled_from(WORKERS), st.just("sweep")), max_size=50
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.lists(PROMPTS, min_size=1, max_size=4), st.sampled_from(["", "t"]))
def test_index_equals_its_model(steps: list, prompts: list[list[int]], salt: str) -> None:
    fleet, naive = Fleet(), Naive()
    for step in steps:
        if step == "sweep":
            fleet.index.sweep()
        elif isinstance(step, str):
            fleet.index.forget(step)
            naive.forget(step)
        else:
            worker, rank, event = step
            fleet.report(worker, event, rank=rank)
            naive.report(worker, rank, event)
    for prompt in prompts:
        assert fleet.held(prompt, salt=salt) == naive.match(prompt, BLOCK, salt)
    fleet.settle()
    for prompt in prompts:
        assert fleet.held(prompt, salt=salt) == naive.match(prompt, BLOCK, salt)
    held = {
        prefix for groups in naive.groups.values() for group in groups.values()
        for prefix in group.held
    }  # fmt: skip
    assert len(fleet.index) == len(held)
    assert sum(rank.blocks for rank in fleet.index.ranks.values()) == sum(
        len(group.names) for groups in naive.groups.values() for group in groups.values()
    )


class Cache:
    """A device's prefix cache which may hold a block twice, and reports it correctly."""

    def __init__(self) -> None:
        self.copies: dict[tuple[int, ...], int] = {}

    def has(self, prompt: list[int]) -> int:
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            if not self.copies.get(tuple(prompt[:end])):
                return end - BLOCK
        return len(prompt)

    def prefill(self, prompt: list[int], twice: bool) -> list[Event]:
        """Computes what is missing; `twice`: the last block again, as for exact multiples."""
        cached = self.has(prompt)
        if cached == len(prompt) and twice:
            cached -= BLOCK
        if cached == len(prompt):
            return []
        for end in range(cached + BLOCK, len(prompt) + 1, BLOCK):
            block = tuple(prompt[:end])
            self.copies[block] = self.copies.get(block, 0) + 1
        return [stored(prompt, cached // BLOCK)]

    def evict(self, block: tuple[int, ...]) -> list[Event]:
        self.copies[block] -= 1
        if not self.copies[block]:
            del self.copies[block]
        return [removed(block)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_index_contains_no_absent_block(data: st.DataObject) -> None:
    fleet, cache = Fleet(), Cache()
    doubled = False
    for _ in range(data.draw(st.integers(0, 25))):
        if cache.copies and data.draw(st.booleans()):
            # Any block, not only leaves: engines differ in what they evict.
            events = cache.evict(data.draw(st.sampled_from(sorted(cache.copies))))
        else:
            events = cache.prefill(data.draw(PROMPTS), data.draw(st.booleans()))
            doubled = doubled or any(copies > 1 for copies in cache.copies.values())
        fleet.report("a", *events)
    for prompt in data.draw(st.lists(PROMPTS, min_size=1, max_size=4)):
        claimed = sum(fleet.held(prompt).get("a", ()))
        assert claimed <= cache.has(prompt)
        if not doubled:
            assert claimed == cache.has(prompt)
