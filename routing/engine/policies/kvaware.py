"""`kvaware`: place a prompt where most of it is cached, by KV events and load.

Cached blocks come from the workers' events (kv.index), blocks just sent from kv.expected_blocks.
Cached tokens are weighted by tier (kv.prices). Prompts without tokens are placed by `prefixaware`,
with a fallback reason; workers without events or with an inaccurate index by load alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from routing.engine.kv.expected_blocks import ExpectedBlocks
from routing.engine.kv.index import Index
from routing.engine.kv.match import Blocks, Match, match
from routing.engine.kv.prices import LoadPrices
from routing.engine.policies import base, ranking
from routing.engine.policies.base import MAX_CANDIDATES, Fleet, Pick, RequestFacts
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.policies.prefixaware import PrefixAware

NOTHING_CACHED = Match(0, 0, 0, 0)


class CachedBlocks:
    """Cached and expected tokens of one prompt, by worker id."""

    __slots__ = ("anywhere", "pending", "workers")

    def __init__(
        self, workers: Mapping[str, Match], pending: Mapping[str, int], anywhere: int
    ) -> None:
        self.workers = workers
        self.pending = pending
        self.anywhere = anywhere

    def tiers(self, worker_id: str) -> Match:
        """Return the tokens the worker need not compute; expected blocks count as on the device."""
        found = self.workers.get(worker_id, NOTHING_CACHED)
        if self.anywhere > found.tokens:
            found = Match(found.gpu, found.l1, self.anywhere - found.gpu - found.l1, found.rank)
        coming = self.pending.get(worker_id, 0)
        return Match(coming, 0, 0, found.rank) if coming > found.tokens else found

    def guessed(self, worker_id: str) -> bool:
        """Return True if part of the match is only expected."""
        found = self.workers.get(worker_id, NOTHING_CACHED)
        return self.pending.get(worker_id, 0) > max(found.tokens, self.anywhere)


class KvAware:
    name = "kvaware"
    reasons: tuple[str, ...] = (
        base.KV_HIT,
        base.PREFIX_HIT,
        base.NO_MATCH,
        base.LEAST_LOADED,
        base.UNHEALTHY,
    )
    needs_chain = True
    needs_session = False
    by_turn = False

    def __init__(self, memory_blocks: int, secret: bytes) -> None:
        self.index = Index(secret)
        self.pending = ExpectedBlocks()
        self.prices = LoadPrices()
        self.believed: Callable[[str], bool] = lambda _worker_id: True
        self.by_prefix = PrefixAware(memory_blocks)

    def held(self, blocks: Blocks) -> CachedBlocks:
        found = match(self.index, blocks.chains)
        workers = {name: held for name, held in found.workers.items() if self.believed(name)}
        return CachedBlocks(workers, self.pending.matched(blocks.chains), found.anywhere)

    def rank(self, facts: RequestFacts, fleet: Fleet, shown: int = MAX_CANDIDATES) -> Pick:
        blocks = facts.blocks
        if blocks is None:
            return self.by_prefix.rank(facts, fleet, shown)
        held = self.held(blocks)
        saved = self.prices.saved
        everywhere = saved(0, 0, held.anywhere)
        credit: dict[str, int] = {}
        for worker_id in {*held.workers, *held.pending}:
            gpu, l1, l2, _ = held.tiers(worker_id)
            if (worth := saved(gpu, l1, l2)) > everywhere:
                credit[worker_id] = worth - everywhere
        # Tokens in shared storage are the same for all workers: excluded from the comparison.
        size, names = _smallest_blocks(blocks)
        compared = RequestFacts(names, facts.tokens - everywhere, size, facts.session)
        pick = ranking.rank(compared, fleet, credit, base.KV_HIT, shown)
        tiers = {item[0]: held.tiers(item[0]) for item in pick.candidates}
        chosen = held.tiers(pick.worker.id)
        pick.tiers = tiers
        pick.guessed = held.guessed(pick.worker.id)
        pick.cached_tokens = chosen.tokens
        pick.candidates = [(item[0], tiers[item[0]].tokens, *item[2:]) for item in pick.candidates]
        if chosen.tokens and pick.reason == base.NO_MATCH:
            pick.reason = base.KV_HIT
        return pick

    def sent(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        self.by_prefix.sent(facts, worker)

    def set_capacity(self, worker_id: str, tokens: int) -> None:
        self.by_prefix.set_capacity(worker_id, tokens)

    def forget(self, worker: RoutingTarget) -> None:
        """Drop a lost worker; its published blocks go with the event source."""
        self.by_prefix.forget(worker)
        self.pending.forget(worker.id)

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for rank in self.index.ranks.values():
            found[rank.worker] = found.get(rank.worker, 0) + rank.blocks
        return found


def _smallest_blocks(blocks: Blocks) -> tuple[int, Sequence[int]]:
    """Return the chain with the smallest blocks, which locates the first new block best."""
    size = min(blocks.chains, default=1)
    return size, blocks.chains.get(size, ())
