"""`prefixaware`: a prompt goes where most of it has been computed before, unless that costs more.

For each worker a bounded memory holds the block hashes of prompts it was sent. A hash covers its
block and everything before it, so knowing one block means knowing the whole prefix. The entry is
made when the request is sent, not when it is answered: a burst of one new prefix stays together.

Theory of the memory. Blocks are touched last block first, so a block is always older than all
blocks before it in the prompt, and forgetting the oldest cuts prefixes at their end, as vLLM does.
So "is block n known" is true up to some n and false after it, and the match is found by bisection:
ten look-ups for a prompt of a thousand blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from routing.engine.policies import base
from routing.engine.policies.base import Candidate, Facts, Fleet, Pick, Target
from routing.engine.policies.cost import cost as cost_of


class PrefixMemory:
    """The newest `limit` blocks one worker was sent."""

    __slots__ = ("_blocks", "_limit")

    def __init__(self, limit: int) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._limit = limit

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, chain: Sequence[int]) -> int:
        """How many leading blocks of the chain are remembered."""
        blocks = self._blocks
        if not chain or chain[0] not in blocks:
            return 0
        high = len(chain)
        if chain[-1] in blocks:
            return high
        low = 1
        high -= 1
        while low < high:
            middle = (low + high + 1) // 2
            if chain[middle - 1] in blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def remember(self, chain: Sequence[int]) -> None:
        blocks = self._blocks
        # A prompt longer than the memory keeps its beginning.
        for block in reversed(chain[: self._limit]):
            blocks[block] = None
            blocks.move_to_end(block)
        while len(blocks) > self._limit:
            blocks.popitem(last=False)


class PrefixAware:
    name = "prefixaware"
    reasons: tuple[str, ...] = (
        base.PREFIX_HIT,
        base.NO_MATCH,
        base.LEAST_LOADED,
        base.UNHEALTHY,
    )
    needs_chain = True
    needs_session = False

    def __init__(self, memory_blocks: int) -> None:
        self._limit = memory_blocks
        self._memories: dict[str, PrefixMemory] = {}

    def rank(self, facts: Facts, fleet: Fleet) -> Pick:
        chain = facts.chain
        tokens = facts.tokens
        memories = self._memories
        candidates: list[Candidate] = []
        chosen = fleet.eligible[0]
        chosen_cost = -1.0
        chosen_match = best_match = 0
        for worker in fleet.eligible:
            memory = memories.get(worker.id)
            matched = memory.match(chain) * facts.block_tokens if memory is not None else 0
            cost = cost_of(worker.load, tokens - matched)
            candidates.append((worker.id, matched, worker.in_flight, cost, True))
            if matched > best_match:
                best_match = matched
            if (
                chosen_cost < 0
                or cost < chosen_cost
                or (cost == chosen_cost and worker.last_pick < chosen.last_pick)
            ):
                chosen, chosen_cost, chosen_match = worker, cost, matched
        lost_match = 0
        for worker in fleet.others:
            memory = memories.get(worker.id)
            matched = memory.match(chain) * facts.block_tokens if memory is not None else 0
            cost = cost_of(worker.load, tokens)
            candidates.append((worker.id, matched, worker.in_flight, cost, False))
            lost_match = max(lost_match, matched)
        if chosen_match:
            reason = base.PREFIX_HIT
        elif best_match:
            reason = base.LEAST_LOADED
        elif lost_match:
            reason = base.UNHEALTHY
        else:
            reason = base.NO_MATCH
        return Pick(chosen, reason, chosen_match, candidates)

    def sent(self, facts: Facts, worker: Target) -> None:
        if facts.chain:
            memory = self._memories.get(worker.id)
            if memory is None:
                memory = self._memories[worker.id] = PrefixMemory(self._limit)
            memory.remember(facts.chain)

    def forget(self, worker: Target) -> None:
        self._memories.pop(worker.id, None)

    def sizes(self) -> dict[str, int]:
        return {worker_id: len(memory) for worker_id, memory in self._memories.items()}
