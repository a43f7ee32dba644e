"""Pages: each is free or in use, and runs are as few as possible."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cachetier.engine.memory.pages import Pages, Run

COUNT = 64


class Model(RuleBasedStateMachine):
    """Against a set of page numbers for each taker."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = Pages(1, COUNT)
        self.taken: list[list[Run]] = []
        self.retired: set[int] = set()

    @rule(count=st.integers(1, 30))
    def take(self, count: int) -> None:
        longest = max((length for _, length in self.pages.runs()), default=0)
        runs = self.pages.take(count)
        if runs is None:
            assert count > self.free()
            return
        assert sum(length for _, length in runs) == count
        assert len(runs) == 1 or longest < count, "cut although one run was long enough"
        assert not numbers(runs) & set().union(*map(numbers, self.taken), self.retired)
        self.taken.append(runs)

    @precondition(lambda self: self.taken)
    @rule(which=st.integers(0))
    def give(self, which: int) -> None:
        self.pages.give(self.taken.pop(which % len(self.taken)))

    @rule(count=st.integers(1, 30))
    def retire(self, count: int) -> None:
        had = self.free()
        runs = self.pages.retire(count)
        assert len(numbers(runs)) == min(count, had)
        self.retired |= numbers(runs)

    @rule(count=st.integers(1, 30))
    def restore(self, count: int) -> None:
        before = numbers(self.pages.runs())
        brought = self.pages.restore(count)
        assert brought == min(count, len(self.retired))
        self.retired -= numbers(self.pages.runs()) - before

    @rule(which=st.integers(0), cut=st.integers(0, 20), count=st.integers(1, 20))
    def withdraw(self, which: int, cut: int, count: int) -> None:
        runs = self.pages.runs()
        if not runs:
            return
        start, length = runs[which % len(runs)]
        part = (start + cut % length, min(count, length - cut % length))
        self.pages.withdraw((start, length), [part])
        self.retired |= numbers([part])

    @rule(count=st.integers(0, 5))
    def extend(self, count: int) -> None:
        if self.pages.top < 2 * COUNT:
            self.pages.extend(count)

    def free(self) -> int:
        taken = sum(len(numbers(runs)) for runs in self.taken)
        return self.pages.top - 1 - taken - len(self.retired)

    @invariant()
    def every_page_is_somewhere_once(self) -> None:
        runs = self.pages.runs()
        everywhere = [*map(numbers, self.taken), self.retired, numbers(runs)]
        assert set().union(*everywhere) == set(range(1, self.pages.top))
        assert sum(map(len, everywhere)) == self.pages.top - 1
        assert self.pages.free == self.free() == len(numbers(runs))
        assert self.pages.retired == len(self.retired)
        ends = {start + length for start, length in runs}
        assert not ends & {start for start, _ in runs}, "neighbours were not joined"


def numbers(runs: list[Run]) -> set[int]:
    return {page for start, length in runs for page in range(start, start + length)}


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_values_of_one_size_stay_intact_under_churn() -> None:
    pages = Pages(0, 100)
    held = [pages.take(10) for _ in range(10)]
    for index in (3, 7, 1, 9, 4):
        pages.give(held[index] or [])
    for _ in range(5):
        runs = pages.take(10)
        assert runs is not None and len(runs) == 1
    assert pages.take(1) is None


def test_used_pages_are_reused_before_new_ones() -> None:
    pages = Pages(0, 1000)
    first = pages.take(10)
    assert first is not None
    pages.take(1)
    pages.give(first)
    assert pages.take(8) == [(0, 8)]
