"""Prefill progress of in-flight prompts, from KV events.

A long prompt is computed in steps, each reporting its blocks, so the remaining work is known during
prefill. Unknown workers, ranks and block sizes are ignored.
"""

from __future__ import annotations

from typing import Protocol

from routing.engine.kv.expected_blocks import Chains
from routing.engine.kv.index import Index


class PromptLoad(Protocol):
    """Load of a prompt on its worker (fleet.load.Charge)."""

    def left(self, tokens: int) -> None:
        """Lower the remaining prompt tokens to at most `tokens`."""


class PrefillProgress:
    __slots__ = ("_chains", "_known", "_size", "_tokens", "_weight", "worker")

    def __init__(self, worker: str, chains: Chains, tokens: int, weight: PromptLoad) -> None:
        self.worker = worker
        self._chains = chains
        self._tokens = tokens
        self._weight = weight
        self._size = 0
        self._known = 0  # leading blocks present at the worker

    def advance(self, index: Index, size: int, bits: int) -> None:
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
