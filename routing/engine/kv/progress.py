"""In-flight prompts: blocks expected of their workers, and prefill progress from KV events."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from routing.engine.kv.index import Index

# From an answer's first byte on: an event may have to be replayed before it is here.
GRACE_S = 2.0

Chains = Mapping[int, Sequence[int]]  # by block size, as for `match`
_NOTHING: Mapping[str, int] = {}


@dataclass(slots=True, eq=False)
class ExpectedPrompt:
    worker: str
    chains: Chains


class ExpectedBlocks:
    """Blocks sent to a worker but not yet reported by its events.

    They keep a burst of one new prompt together until the events arrive. An expectation ends when
    its request fails, or shortly after the first answer byte. Blocks already reported when the
    prompt was sent are not expected: they count while the index has them, and the cost of a long
    prompt's next turn is that of its new blocks.
    """

    def __init__(self) -> None:
        self._holders: dict[int, dict[str, int]] = {}  # name -> worker -> count
        self._prompts: dict[str, dict[ExpectedPrompt, None]] = {}
        self._answered: deque[tuple[float, ExpectedPrompt]] = deque()

    def __len__(self) -> int:
        return len(self._holders)

    def sent(self, worker: str, chains: Chains, reported: int = 0) -> ExpectedPrompt:
        """Expect a prompt, of which events reported the first `reported` tokens."""
        holders = self._holders
        if reported:
            chains = {size: names[reported // size :] for size, names in chains.items()}
        for names in chains.values():
            for name in names:
                workers = holders.get(name)
                if workers is None:
                    holders[name] = {worker: 1}
                else:
                    workers[worker] = workers.get(worker, 0) + 1
        prompt = ExpectedPrompt(worker, chains)
        self._prompts.setdefault(worker, {})[prompt] = None
        return prompt

    def answered(self, guess: ExpectedPrompt, now: float) -> None:
        """Let the expectation expire shortly after the first answer byte."""
        self._answered.append((now + GRACE_S, guess))

    def failed(self, guess: ExpectedPrompt) -> None:
        """Drop the expectation; idempotent. One of an earlier strategy is none of these."""
        worker = guess.worker
        prompts = self._prompts.get(worker)
        if prompts is None or guess not in prompts:
            return
        del prompts[guess]
        if not prompts:
            del self._prompts[worker]
        for names in guess.chains.values():
            for name in names:
                workers = self._holders[name]
                workers[worker] -= 1
                if not workers[worker]:
                    del workers[worker]
                    if not workers:
                        del self._holders[name]

    def tick(self, now: float) -> None:
        while self._answered and self._answered[0][0] <= now:
            self.failed(self._answered.popleft()[1])

    def forget(self, worker: str) -> None:
        """Drop the expectations of a lost worker."""
        for guess in list(self._prompts.get(worker, ())):
            self.failed(guess)

    def cleared(self, worker: str) -> None:
        """Drop the expectations of answered prompts: the worker's cache was emptied."""
        for _, guess in self._answered:
            if guess.worker == worker:
                self.failed(guess)

    def removed(self, worker: str, names: Sequence[int | None]) -> None:
        """Drop the expectations of answered prompts of which the worker evicted a block: it was
        reported before, or an earlier copy of it was.
        """
        if worker not in self._prompts:
            return
        gone = {name for name in names if name and worker in self._holders.get(name, _NOTHING)}
        if not gone:
            return
        for _, guess in self._answered:
            if guess.worker == worker and any(
                not gone.isdisjoint(chain) for chain in guess.chains.values()
            ):
                self.failed(guess)

    def matched(self, chains: Chains, reported: Mapping[str, int] = _NOTHING) -> dict[str, int]:
        """Return the expected prefix tokens by worker, continuing the `reported` ones."""
        by_worker: dict[str, int] = {}
        holders = self._holders
        if not holders:
            return by_worker
        continued = [worker for worker in reported if worker in self._prompts]
        for size, names in chains.items():
            workers = holders.get(names[0], _NOTHING) if names else _NOTHING
            for worker in {*workers, *continued}:
                position = start = reported.get(worker, 0) // size
                while position < len(names) and worker in holders.get(names[position], _NOTHING):
                    position += 1
                if position > start:
                    by_worker[worker] = max(by_worker.get(worker, 0), position * size)
        return by_worker


class PromptLoad(Protocol):
    """Load of a prompt on its worker (fleet.load.Charge)."""

    def left(self, tokens: int) -> None:
        """Lower the remaining prompt tokens to at most `tokens`."""


@dataclass(slots=True, eq=False)
class PrefillProgress:
    worker: str
    chains: Chains
    tokens: int
    weight: PromptLoad
    reported: int = 0  # tokens present when it was sent
    size: int = 0
    known: int = 0  # leading blocks present at the worker

    def advance(self, index: Index, size: int, bits: int) -> None:
        names = self.chains.get(size, ())
        if size != self.size:
            self.size, self.known = size, self.reported // size
        before = self.known
        while before < len(names) and index.holders(names[before]) & bits:
            before += 1
        if before > self.known:
            self.known = before
            self.weight.left(self.tokens - before * size)


class Progress:
    """Prefill progress by worker.

    A long prompt is computed in steps, each reporting its blocks, so the remaining work is known
    during prefill. Unknown workers, ranks and block sizes are ignored.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._prompts: dict[str, dict[PrefillProgress, None]] = {}

    def begins(
        self, worker: str, chains: Chains, tokens: int, weight: PromptLoad, reported: int = 0
    ) -> PrefillProgress:
        """Start tracking a prompt; `chains` as for `match`, `reported` as for `sent`."""
        prompt = PrefillProgress(worker, chains, tokens, weight, reported)
        self._prompts.setdefault(worker, {})[prompt] = None
        return prompt

    def ends(self, prompt: PrefillProgress) -> None:
        """Stop tracking; idempotent."""
        prompts = self._prompts.get(prompt.worker)
        if prompts is not None:
            prompts.pop(prompt, None)
            if not prompts:
                del self._prompts[prompt.worker]

    def advance_worker(self, worker: str) -> bool:
        """Advance the prompts in flight on a worker; return False if there are none."""
        prompts = self._prompts.get(worker)
        if not prompts:
            return False
        size, bits = self._index.device_of(worker)
        if bits:
            for prompt in prompts:
                prompt.advance(self._index, size, bits)
        return True

    def __len__(self) -> int:
        return sum(map(len, self._prompts.values()))
