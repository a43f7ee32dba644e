"""Shared prefix index compared with a model: one block list per worker."""

from __future__ import annotations

import gc
import random
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.policies.prefix_index import CACHED_NAMES, PrefixIndex, set_bits

Steps = list[tuple[int, list[int], int]]
ROOMY = 10**9


def chain(words: list[int]) -> list[int]:
    """Hashes which cover all before them, from small words: forks are frequent."""
    out: list[int] = []
    before = 7
    for word in words:
        before = hash((before, word)) & (2**64 - 1)
        out.append(before)
    return out


class Model:
    """Blocks from the oldest to the newest; each touched after those behind it."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def remember(self, blocks: list[int], limit: int) -> None:
        blocks = blocks[:limit]
        touched = set(blocks)
        self.blocks = [b for b in self.blocks if b not in touched] + blocks[::-1]
        self.blocks = self.blocks[max(0, len(self.blocks) - limit) :]

    def match(self, blocks: list[int]) -> int:
        known = set(self.blocks)
        return next((at for at, block in enumerate(blocks) if block not in known), len(blocks))


def test_displaced_blocks_are_dated_by_their_last_prompt() -> None:
    index = PrefixIndex()
    old, new = chain([1] * 10), chain([2] * 10)
    index.remember("w", 0, old, 20)
    index.remember("w", 0, new, 20)
    assert (index.displaced("other", 5), index.displaced("w", 0)) == (0, 0)
    assert (index.displaced("w", 10), index.displaced("w", 11)) == (1, 2)
    index.remember("w", 0, old[:4], 20)  # splits a run: its end stays old
    assert [index.displaced("w", count) for count in (6, 7, 17)] == [1, 2, 3]


def match(index: PrefixIndex, worker: str, blocks: list[int]) -> int:
    memory = index.memories.get(worker)
    bit = memory.bit if memory is not None else 0
    return max((count for count, bits in index.levels(blocks) if bits & bit), default=0)


def check(index: PrefixIndex) -> None:
    """What must hold after every change."""
    for run in index._runs.values():
        partly = run.partly or {}
        assert run.holders, "a run nobody knows whole is cut to what somebody knows"
        assert all(0 < count < len(run.blocks) for count in partly.values())
        assert not any(run.holders >> slot & 1 for slot in partly)
        known = run.holders | sum(1 << slot for slot in partly)
        if run.parent is not None:
            assert known & ~run.parent.holders == 0, "a hole in somebody's prefix"
            assert run.parent in index._runs.values()
        assert index._runs[run.blocks[0]] is run
        assert run.children == sum(1 for other in index._runs.values() if other.parent is run)
    for memory in index.memories.values():
        held = sum(
            len(run.blocks) if run.holders & memory.bit else (run.partly or {})[memory.slot]
            for run in memory.runs
        )
        assert held == memory.blocks <= memory.limit
        order = list(memory.runs)
        for at, run in enumerate(order):
            assert run.parent is None or run.parent in order[at + 1 :], "older than its end"
    knowers = {memory.bit: set(memory.runs) for memory in index.memories.values()}
    for run in index._runs.values():
        for slot in [*set_bits(run.holders), *(run.partly or {})]:
            assert run in knowers[1 << slot]


words = st.lists(st.integers(0, 2), min_size=1, max_size=12)
steps = st.lists(st.tuples(st.integers(0, 3), words, st.integers(0, 9)), max_size=60)


@given(steps)
@settings(max_examples=300)
def test_every_match_is_exact_without_pressure(given_steps: Steps) -> None:
    index, models = PrefixIndex(), {f"w{n}": Model() for n in range(4)}
    seen: list[list[int]] = []
    for number, text, gone in given_steps:
        name, blocks = f"w{number}", chain(text)
        seen.append(blocks)
        if gone == 0:
            index.forget(name)
            models[name] = Model()
        index.remember(name, number, blocks, ROOMY)
        models[name].remember(blocks, ROOMY)
        check(index)
        for probe in seen:
            for worker, model in models.items():
                assert match(index, worker, probe) == model.match(probe)
    everything = {block for model in models.values() for block in model.blocks}
    assert len(index) == len(everything)


@given(steps, st.integers(1, 20))
@settings(max_examples=300)
def test_memory_of_one_worker_evicts_like_its_model(given_steps: Steps, limit: int) -> None:
    index, model = PrefixIndex(), Model()
    seen: list[list[int]] = []
    for _, text, _ in given_steps:
        blocks = chain(text)
        seen.append(blocks)
        index.remember("w", 0, blocks, limit)
        model.remember(blocks, limit)
        check(index)
        assert index.sizes() == {"w": len(model.blocks)}
        for probe in seen:
            assert match(index, "w", probe) == model.match(probe)


def test_prompts_in_flight_are_evicted_last() -> None:
    index = PrefixIndex()
    running: dict[int, int] = {}
    document = chain([1] * 6)
    question = [*document, *chain([2] * 2)]
    index.remember("w", 0, question, 12, running)
    index.remember("w", 0, chain([3] * 4), 12, running)
    running[question[-1]] = 1
    assert index.displaced("w", 4) == 2
    index.remember("w", 0, chain([4] * 4), 12, running)
    check(index)
    assert [match(index, "w", prompt) for prompt in (question, chain([3] * 4))] == [8, 0]
    running.clear()  # dated by a prompt of its time in flight
    index.remember("w", 0, chain([5] * 8), 12, running)
    assert [match(index, "w", prompt) for prompt in (question, chain([4] * 4))] == [4, 0]


def test_prompts_in_flight_are_evicted_where_nothing_else_is_left() -> None:
    index = PrefixIndex()
    prompts = [chain([number] * 6) for number in range(3)]
    running = {prompt[-1]: 1 for prompt in prompts}
    for prompt in prompts:
        index.remember("w", 0, prompt, 12, running)
        check(index)
    assert [match(index, "w", prompt) for prompt in prompts] == [0, 6, 6]
    index.limit("w", 6)
    check(index)


@given(steps, st.lists(st.integers(1, 20), min_size=4, max_size=4))
@settings(max_examples=300)
def test_under_pressure_only_sent_prefixes_match(given_steps: Steps, limits: list[int]) -> None:
    index = PrefixIndex()
    sent: dict[str, set[int]] = {f"w{n}": set() for n in range(4)}
    running: set[int] = set()
    for number, text, what in given_steps:
        name, blocks = f"w{number}", chain(text)
        if what > 5:
            running ^= {blocks[-1]}
        if what == 0:
            index.forget(name)
            sent[name] = set()
        if what == 1:
            limits[number] = 1 + limits[number] // 2
            index.limit(name, limits[number])
            check(index)
        index.remember(name, number, blocks, limits[number], running)
        sent[name].update(blocks)
        check(index)
        assert match(index, name, blocks) == min(len(blocks), limits[number])
        for worker, known in sent.items():
            assert all(block in known for block in blocks[: match(index, worker, blocks)])


def test_levels_are_nested_and_end_with_the_longest_match() -> None:
    index = PrefixIndex()
    index.remember("a", 0, [1, 2, 3, 4], 100)
    index.remember("b", 1, [1, 2, 9], 100)
    index.remember("c", 2, [1, 2], 100)
    a, b, c = (index.memories[name].bit for name in "abc")
    assert index.levels([1, 2, 3, 4, 5]) == [(2, a | b | c), (4, a)]
    assert index.levels([1, 2, 9]) == [(2, a | b | c), (3, b)]
    assert index.levels([1, 7]) == [(1, a | b | c)]
    assert index.levels([7]) == []


def test_leaves_are_evicted_first_and_shared_prefixes_stay() -> None:
    index = PrefixIndex()
    index.remember("a", 0, [1, 2, 3, 4], 4)
    index.remember("b", 1, [1, 2, 3, 4], 4)
    index.remember("a", 0, [8, 9], 4)
    a, b = (index.memories[name].bit for name in "ab")
    assert index.levels([1, 2, 3, 4]) == [(2, a | b), (4, b)]
    index.limit("b", 3)
    assert index.levels([1, 2, 3, 4]) == [(2, a | b), (3, b)]
    assert len(index) == 5, "what nobody knows is not kept"


def test_number_of_worker_sets_is_bounded() -> None:
    index = PrefixIndex()
    for slot in range(12):
        index.remember(f"w{slot}", slot, [slot], 10)
    for bits in range(1, 1 << 12):
        assert index.names(bits) == tuple(f"w{slot}" for slot in set_bits(bits))
        assert len(index._names) <= CACHED_NAMES


def test_joins_and_leaves_leave_nothing() -> None:
    rng = random.Random(1)
    index = PrefixIndex()

    def churn(times: int) -> None:
        for turn in range(times):
            name = f"w{turn % 50}-{rng.random()}"
            system = [1, 2, 3]
            for _ in range(3):
                own = [rng.getrandbits(64) for _ in range(5)]
                index.remember(name, turn, system + own, 12)
            if turn % 50 == 49 or rng.random() < 0.9:
                index.forget(name)
        for name in list(index.memories):
            index.forget(name)

    churn(1000)
    gc.collect()
    tracemalloc.start()
    for _ in range(10):
        churn(1000)
    gc.collect()
    # Only what the engine's own lines hold: other threads of this process allocate, too.
    mine = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(True, "*/routing/engine/*"), tracemalloc.Filter(True, __file__)]
    )
    tracemalloc.stop()
    grown = sum(trace.size for trace in mine.traces)
    assert (index.memories, index._runs, index.bits, index._by_slot) == ({}, {}, {}, {})
    assert grown < 160_000, "tables which were large once; a leak of one int a worker is 320 kB"
