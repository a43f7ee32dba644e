"""`prefixaware`: place a prompt where most of it was computed before, weighed against load.

The index records prompts when sent, not when answered, so that a burst of one new prefix stays
together; its size follows the workers' caches.
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.engine.policies import base, ranking
from routing.engine.policies.base import MAX_CANDIDATES, Fleet, Pick, RequestFacts, RoutingPolicy
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.policies.prefix_index import Level, PrefixIndex


class SentPrefixes:
    __slots__ = ("_bits_of", "levels")

    def __init__(self, index: PrefixIndex, levels: list[Level], block_tokens: float) -> None:
        self._bits_of = index.bits
        self.levels = [(int(blocks * block_tokens), bits) for blocks, bits in reversed(levels)]

    def get(self, worker_id: str, default: int, /) -> int:
        bit = self._bits_of.get(worker_id, 0)
        for tokens, bits in self.levels:
            if bits & bit:
                return tokens
        return default


class PrefixAware(RoutingPolicy):
    name = "prefixaware"
    reasons = (base.PREFIX_HIT, base.NO_MATCH, base.LEAST_LOADED, base.UNHEALTHY)
    needs_chain = True

    def __init__(self, memory_blocks: int) -> None:
        self.limit = memory_blocks
        self._index = PrefixIndex()
        self._capacities: dict[str, int] = {}  # in tokens, where known
        self._block_tokens = 64.0

    def rank(self, facts: RequestFacts, fleet: Fleet, shown: int = MAX_CANDIDATES) -> Pick:
        index = self._index
        levels = index.levels(facts.chain)
        block_tokens = facts.block_tokens
        order = fleet.order
        if order is not None:
            sent = SentPrefixes(index, levels, block_tokens)
            return ranking.rank_many(
                facts, fleet, order, sent, base.PREFIX_HIT, shown, self.displaced
            )
        matched: dict[str, int] = {}
        for blocks, bits in levels:
            tokens = int(blocks * block_tokens)
            for worker_id in index.names(bits):
                matched[worker_id] = tokens
        return ranking.rank_few(facts, fleet, matched, base.PREFIX_HIT, shown, self.displaced)

    def displaced(self, worker_id: str, tokens: int) -> int:
        """Return the age of what `tokens` more would displace (PrefixIndex.displaced)."""
        return self._index.displaced(worker_id, int(tokens / self._block_tokens))

    def sent(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        if facts.chain:
            self._block_tokens = facts.block_tokens
            limit = self.limit
            if self._capacities:
                tokens = self._capacities.get(worker.id)
                if tokens is not None:
                    limit = max(1, int(tokens / facts.block_tokens))
            self._index.remember(worker.id, worker.slot, facts.chain, limit)

    def set_capacity(self, worker_id: str, tokens: int) -> None:
        self._capacities[worker_id] = tokens
        self._index.limit(worker_id, max(1, int(tokens / self._block_tokens)))

    def forget(self, worker: RoutingTarget) -> None:
        self._index.forget(worker.id)
        self._capacities.pop(worker.id, None)

    def memory(self, worker_id: str, most_blocks: int) -> list[tuple[float, Sequence[int]]]:
        return [(self._block_tokens, chain) for chain in self._index.chains(worker_id, most_blocks)]

    def sizes(self) -> dict[str, int]:
        return self._index.sizes()
