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


@dataclass(slots=True, eq=False)
class ExpectedPrompt:
    worker: str
    chains: Chains
    over: bool = False


class ExpectedBlocks:
    """Blocks sent to a worker but not yet reported by its events.

    They keep a burst of one new prompt together until the events arrive. An expectation ends when
    its request fails, or shortly after the first answer byte.
    """

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
        """Drop the expectation; idempotent."""
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

    def tick(self, now: float) -> None:
        while self._answered and self._answered[0][0] <= now:
            self.failed(self._answered.popleft()[1])

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
    size: int = 0
    known: int = 0  # leading blocks present at the worker

    def advance(self, index: Index, size: int, bits: int) -> None:
        names = self.chains.get(size, ())
        if size != self.size:
            self.size, self.known = size, 0
        known = self.known
        while known < len(names) and index.holders(names[known]) & bits:
            known += 1
        if known > self.known:
            self.known = known
            self.weight.left(self.tokens - known * size)


class Progress:
    """Prefill progress by worker.

    A long prompt is computed in steps, each reporting its blocks, so the remaining work is known
    during prefill. Unknown workers, ranks and block sizes are ignored.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._prompts: dict[str, dict[PrefillProgress, None]] = {}

    def begins(
        self, worker: str, chains: Chains, tokens: int, weight: PromptLoad
    ) -> PrefillProgress:
        """Start tracking a prompt; `chains` as for `match`."""
        prompt = PrefillProgress(worker, chains, tokens, weight)
        self._prompts.setdefault(worker, {})[prompt] = None
        return prompt

    def ends(self, prompt: PrefillProgress) -> None:
        """Stop tracking; idempotent."""
        prompts = self._prompts.get(prompt.worker)
        if prompts is not None:
            prompts.pop(prompt, None)
            if not prompts:
                del self._prompts[prompt.worker]

    def heard(self, worker: str) -> None:
        prompts = self._prompts.get(worker)
        if not prompts:
            return
        size, bits = self._index.device_of(worker)
        if bits:
            for prompt in prompts:
                prompt.advance(self._index, size, bits)

    def __len__(self) -> int:
        return sum(map(len, self._prompts.values()))
