"""`prefixaware`: place a prompt where most of it was computed before, weighed against load.

The index records prompts when sent, not when answered, so that a burst of one new prefix stays
together; its size follows the workers' caches. It keeps prompts in flight, as the workers do. A
second index, as large as L1, records the same prompts where L1 is larger than the device cache and
its size is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from routing.engine.policies import base, cost, ranking
from routing.engine.policies.base import MAX_CANDIDATES, Fleet, Pick, RequestFacts, RoutingPolicy
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.policies.prefix_index import Level, PrefixIndex

# Part of a worker's cache that is remembered. The rest holds answers and running requests; a prefix
# that is remembered but evicted costs more than one forgotten just before its eviction. The share
# falls by STEP with an answer that reports less of a remembered prefix than TOLERANCE allows, rises
# by STEP with one that reports more, and by RECOVERY with any other.
MAX_SHARE: Final = 0.95
MIN_SHARE: Final = 0.9
STEP: Final = 0.01
RECOVERY: Final = 1e-4
TOLERANCE: Final = 0.2
TOLERANCE_TOKENS: Final = 512


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
    reasons: tuple[str, ...] = (base.PREFIX_HIT, base.NO_MATCH, base.LEAST_LOADED, base.UNHEALTHY)
    needs_chain = True

    def __init__(self, memory_blocks: int) -> None:
        self.limit = memory_blocks
        self._index = PrefixIndex()
        self._tiers = PrefixIndex()  # device and L1, of the workers in `_l1`
        self._l1: dict[str, int] = {}  # size of L1 in tokens, where larger than the device cache
        self._capacities: dict[str, int] = {}  # in tokens, where known
        self._shares: dict[str, float] = {}  # usable part of a cache, where learned
        self._block_tokens = 64.0

    def rank(self, facts: RequestFacts, fleet: Fleet, shown: int = MAX_CANDIDATES) -> Pick:
        if self._tiers.memories:
            return self._rank_tiers(facts, fleet, shown)
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

    def _rank_tiers(self, facts: RequestFacts, fleet: Fleet, shown: int) -> Pick:
        """Rank by both indexes: a token in L1 saves less than one on the device."""
        held = self._matched(self._index, facts)
        saved = dict(held)
        for worker_id, tokens in self._matched(self._tiers, facts).items():
            device = held.get(worker_id, 0)
            if tokens > device:
                saved[worker_id] = device + int((tokens - device) * (1 - cost.L1_SHARE))
                held[worker_id] = tokens
        pick = ranking.rank(facts, fleet, saved, base.PREFIX_HIT, shown, self.displaced)
        pick.cached_tokens = held.get(pick.worker.id, 0)
        pick.candidates = [(item[0], held.get(item[0], 0), *item[2:]) for item in pick.candidates]
        return pick

    @staticmethod
    def _matched(index: PrefixIndex, facts: RequestFacts) -> dict[str, int]:
        return {
            worker_id: int(blocks * facts.block_tokens)
            for blocks, bits in index.levels(facts.chain)
            for worker_id in index.names(bits)
        }

    def matched(self, facts: RequestFacts) -> dict[str, int]:
        """Return the tokens of the prompt that each worker was sent before."""
        return self._matched(self._index, facts)

    def displaced(self, worker_id: str, tokens: int) -> int:
        """Return the age of what `tokens` more would displace (PrefixIndex.displaced)."""
        return self._index.displaced(worker_id, int(tokens / self._block_tokens))

    def sent(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        if facts.chain:
            is_known = self._remember(facts, worker)
            facts.known_tokens = is_known * facts.block_tokens
            facts.known_blocks = is_known
            facts.records = (self._index.prompts, self._tiers.prompts)

    def refused(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        for index, record in zip((self._index, self._tiers), facts.records, strict=True):
            index.retract(worker.id, facts.chain, facts.known_blocks, record)

    def ended(
        self, facts: RequestFacts, worker: RoutingTarget, prompt: int, cached: int | None
    ) -> None:
        """Date the prompt by its end, as engines do, and learn the usable share of the cache."""
        if not facts.chain or worker.id not in self._index.memories:
            return
        if cached is not None and facts.tokens and worker.id in self._capacities:
            known_share = facts.known_tokens * prompt / facts.tokens
            self._learn(worker.id, known_share, cached)
        self._remember(facts, worker)

    def _learn(self, worker_id: str, known: float, cached: int) -> None:
        share = self._shares.get(worker_id, MAX_SHARE)
        if cached < known * (1 - TOLERANCE) - TOLERANCE_TOKENS:
            self._shares[worker_id] = max(share * (1 - STEP), MIN_SHARE)
        elif share < MAX_SHARE:
            more = cached > known * (1 + TOLERANCE) + TOLERANCE_TOKENS
            self._shares[worker_id] = min(share * (1 + (STEP if more else RECOVERY)), MAX_SHARE)

    def share(self, worker_id: str) -> float:
        return self._shares.get(worker_id, 0.0)

    def set_share(self, worker_id: str, share: float) -> None:
        self._shares[worker_id] = min(max(share, MIN_SHARE), MAX_SHARE)

    def _remember(self, facts: RequestFacts, worker: RoutingTarget) -> int:
        """Return the blocks that were remembered before."""
        self._block_tokens = facts.block_tokens
        limit = self.limit
        if self._capacities:
            tokens = self._capacities.get(worker.id)
            if tokens is not None:
                limit = self._blocks(worker.id, tokens)
        self._index.remember(worker.id, worker.slot, facts.chain, limit, worker.prompts)
        if worker.id not in self._l1:
            return self._index.known
        limit = self._blocks(worker.id, self._l1[worker.id])
        self._tiers.remember(worker.id, worker.slot, facts.chain, limit, worker.prompts)
        return max(self._index.known, self._tiers.known)

    def _blocks(self, worker_id: str, tokens: int) -> int:
        usable = tokens * self._shares.get(worker_id, MAX_SHARE)
        return max(1, int(usable / self._block_tokens))

    def set_capacity(self, worker_id: str, tokens: int, l1_tokens: int = 0) -> None:
        self._capacities[worker_id] = tokens
        self._index.limit(worker_id, self._blocks(worker_id, tokens))
        if l1_tokens > tokens:
            self._l1[worker_id] = l1_tokens
            self._tiers.limit(worker_id, self._blocks(worker_id, l1_tokens))
        elif self._l1.pop(worker_id, 0):
            self._tiers.forget(worker_id)

    def forget(self, worker: RoutingTarget) -> None:
        self._index.forget(worker.id)
        self._tiers.forget(worker.id)
        self._l1.pop(worker.id, None)
        self._capacities.pop(worker.id, None)
        self._shares.pop(worker.id, None)

    def memory(self, worker_id: str, most_blocks: int) -> list[tuple[float, Sequence[int]]]:
        index = self._tiers if worker_id in self._tiers.memories else self._index
        return [(self._block_tokens, chain) for chain in index.chains(worker_id, most_blocks)]

    def sizes(self) -> dict[str, int]:
        return self._index.sizes() | self._tiers.sizes()
