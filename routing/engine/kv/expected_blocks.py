"""Blocks sent to a worker but not yet reported by its events.

They keep a burst of one new prompt together until the events arrive. An expectation ends when its
request fails, or shortly after the first answer byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

GRACE_S = 2.0
"""From an answer's first byte on: an event may have to be replayed before it is here."""

Chains = Mapping[int, Sequence[int]]  # by block size, as for `match`


class ExpectedPrompt:
    __slots__ = ("chains", "over", "worker")

    def __init__(self, worker: str, chains: Chains) -> None:
        self.worker = worker
        self.chains = chains
        self.over = False


class ExpectedBlocks:
    def __init__(self) -> None:
        self._holders: dict[int, dict[str, int]] = {}  # name -> worker -> count
        self._answered: deque[tuple[float, ExpectedPrompt]] = deque()

    def __len__(self) -> int:
        return len(self._holders)

    def sent(self, worker: str, chains: Chains) -> ExpectedPrompt:
        holders = self._holders
        for names in chains.values():
            for name in names:
                workers = holders.get(name)
                if workers is None:
                    holders[name] = {worker: 1}
                else:
                    workers[worker] = workers.get(worker, 0) + 1
        return ExpectedPrompt(worker, chains)

    def answered(self, guess: ExpectedPrompt, now: float) -> None:
        """Let the expectation expire shortly after the first answer byte."""
        self._answered.append((now + GRACE_S, guess))

    def failed(self, guess: ExpectedPrompt) -> None:
        self._drop(guess)

    def tick(self, now: float) -> None:
        while self._answered and self._answered[0][0] <= now:
            self._drop(self._answered.popleft()[1])

    def forget(self, worker: str) -> None:
        """Drop the expectations of a lost worker."""
        for name in [name for name, workers in self._holders.items() if worker in workers]:
            workers = self._holders[name]
            del workers[worker]
            if not workers:
                del self._holders[name]

    def matched(self, chains: Chains) -> dict[str, int]:
        """Return the expected prefix tokens by worker."""
        found: dict[str, int] = {}
        holders = self._holders
        if not holders:
            return found
        for size, names in chains.items():
            alive: set[str] | None = None
            for number, name in enumerate(names):
                workers = holders.get(name)
                here = set(workers) if workers else set()
                if alive is not None:
                    for lost in alive - here:
                        found[lost] = max(found.get(lost, 0), number * size)
                    here &= alive
                alive = here
                if not alive:
                    break
            for left in alive or ():
                found[left] = max(found.get(left, 0), len(names) * size)
        return found

    def _drop(self, guess: ExpectedPrompt) -> None:
        if guess.over:
            return
        guess.over = True
        worker = guess.worker
        for names in guess.chains.values():
            for name in names:
                workers = self._holders.get(name)
                if workers is None or worker not in workers:
                    continue
                workers[worker] -= 1
                if not workers[worker]:
                    del workers[worker]
                    if not workers:
                        del self._holders[name]
