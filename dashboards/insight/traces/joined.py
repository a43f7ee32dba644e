"""Requests of a trace whose blocks are stored once and joined on access. Pure.

Prompts of a conversation repeat each other: a file of 230 KB can have 40 million blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

from dashboards.insight.traces.trace import TraceRequest


class JoinedRequests(Sequence[TraceRequest]):
    """Requests in the order of `order`. `joined`: blocks that are shown as one."""

    def __init__(self) -> None:
        self._facts: list[TraceRequest] = []  # without blocks
        self._heads: list[tuple[int, int]] = []  # request with the first blocks, and their number
        self._own: list[Sequence[int]] = []
        self._answers: list[int] = []  # number of the last blocks, which its answer filled
        self._order: Sequence[int] = ()
        self._joined = 1

    def append(
        self, facts: TraceRequest, head: int, kept: int, own: Sequence[int], answer: int = 0
    ) -> int:
        """Add a request with the first `kept` blocks of request `head` and its own after them, of
        which the last `answer` are its answer's; return its number. Raise IndexError if `head` has
        fewer.
        """
        if kept and not (0 <= head < len(self._facts) and kept <= self.length(head)):
            raise IndexError("no such blocks")
        self._facts.append(facts)
        self._heads.append((head if kept else -1, kept))
        self._own.append(own)
        self._answers.append(answer)
        return len(self._facts) - 1

    def length(self, number: int) -> int:
        """Return the number of blocks of a request and its answer."""
        return self._heads[number][1] + len(self._own[number])

    def order(self, numbers: Sequence[int]) -> None:
        """Show these requests in this order."""
        self._order = numbers

    def order_by_arrival(self, numbers: Sequence[int]) -> None:
        self._order = sorted(numbers, key=lambda number: self._facts[number].arrived_s)

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> TraceRequest: ...

    @overload
    def __getitem__(self, at: slice) -> list[TraceRequest]: ...

    def __getitem__(self, at: int | slice) -> TraceRequest | list[TraceRequest]:
        if isinstance(at, slice):
            return [self._show(number) for number in self._order[at]]
        return self._show(self._order[at])

    def __iter__(self) -> Iterator[TraceRequest]:
        return map(self._show, self._order)

    def _show(self, number: int) -> TraceRequest:
        parts: list[tuple[int, Sequence[int]]] = []  # place of the first block, and blocks
        index, length = number, -1
        while index >= 0:
            before, shared_count = self._heads[index]
            own = self._own[index]
            if length < 0 or length > shared_count:
                parts.append((shared_count, own if length < 0 else own[: length - shared_count]))
            length = shared_count if length < 0 else min(length, shared_count)
            index = before if length else -1
        blocks: list[int] = []
        count, last = self._joined, len(parts[0][1]) + parts[0][0]
        for place, part in reversed(parts):
            # The last of each group stands for it: equal ones have equal blocks before them.
            blocks.extend(part[-(place + 1) % count :: count])
        if last % count:
            blocks.append(next(part[-1] for _, part in parts if part))
        prompt = -(-(last - self._answers[number]) // count)
        answer = tuple(blocks[prompt:])
        return replace(self._facts[number], blocks=tuple(blocks[:prompt]), answer_blocks=answer)
