"""How far the prompts have come which a worker is computing, as its events tell.

A long prompt is computed in steps, and each step's blocks are told of when it ends. So what a
worker still has to do is known while it does it, and not only when it answers: a prompt which is
all but computed is no reason to go elsewhere.

Promises that what is told costs a look-up for each block told of and each prompt under way, and
that an unknown worker, rank or block size only means that nothing is learnt. Must not know
requests, sockets or what a token costs.
"""

from __future__ import annotations

from typing import Protocol

from routing.engine.kv.expected_blocks import Chains
from routing.engine.kv.index import Index


class Weight(Protocol):
    """What a prompt weighs on its worker: load.Charge is one."""

    def left(self, tokens: int) -> None:
        """No more than so many tokens of it have still to be computed."""


class Prompt:
    """One that is under way on a worker."""

    __slots__ = ("_chains", "_known", "_size", "_tokens", "_weight", "worker")

    def __init__(self, worker: str, chains: Chains, tokens: int, weight: Weight) -> None:
        self.worker = worker
        self._chains = chains
        self._tokens = tokens
        self._weight = weight
        self._size = 0
        self._known = 0  # blocks from the start which the worker has

    def advance(self, index: Index, size: int, bits: int) -> None:
        """Look on from where it was."""
        names = self._chains.get(size, ())
        if size != self._size:
            self._size, self._known = size, 0
        known = self._known
        while known < len(names) and index.holders(names[known]) & bits:
            known += 1
        if known > self._known:
            self._known = known
            self._weight.left(self._tokens - known * size)


class Progress:
    def __init__(self, index: Index) -> None:
        self._index = index
        self._prompts: dict[str, dict[Prompt, None]] = {}  # by worker

    def begins(self, worker: str, chains: Chains, tokens: int, weight: Weight) -> Prompt:
        """It was sent there just now; `chains` as `match` wants them."""
        prompt = Prompt(worker, chains, tokens, weight)
        self._prompts.setdefault(worker, {})[prompt] = None
        return prompt

    def ends(self, prompt: Prompt) -> None:
        """It is computed, or never will be. More than once does no harm."""
        prompts = self._prompts.get(prompt.worker)
        if prompts is not None:
            prompts.pop(prompt, None)
            if not prompts:
                del self._prompts[prompt.worker]

    def heard(self, worker: str) -> None:
        """Some of its events were applied to the index."""
        prompts = self._prompts.get(worker)
        if not prompts:
            return
        size, bits = self._index.device_of(worker)
        if bits:
            for prompt in prompts:
                prompt.advance(self._index, size, bits)

    def __len__(self) -> int:
        return sum(map(len, self._prompts.values()))
