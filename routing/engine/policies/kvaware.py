"""`kvaware`: place a prompt where most of it is cached, by KV events and load.

Cached blocks come from the workers' events (kv.index), blocks just sent from kv.progress. Cached
tokens are weighted by tier (LoadPrices). Prompts without tokens are placed by `prefixaware`,
with a fallback reason; workers without events or with an inaccurate index by load alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from routing.engine.kv.index import Index
from routing.engine.kv.match import Blocks, Match, match
from routing.engine.kv.progress import ExpectedBlocks
from routing.engine.policies import base, ranking
from routing.engine.policies.base import MAX_CANDIDATES, Fleet, Pick, RequestFacts, RoutingPolicy
from routing.engine.policies.cost import L1_SHARE
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.policies.prefixaware import PrefixAware

GPU_SHARE: Final = 0.0
L2_SHARE: Final = 0.1
_MIN_TOKENS: Final = 64  # of one kind, for an answer to be used
_MAX_MIXED: Final = 0.2  # largest share of another kind
_LEARN: Final = 0.1
_OUTLIER: Final = 3.0  # clamp factor of a sample


@dataclass(slots=True, eq=False)
class AverageRate:
    """EWMA of seconds per token; 0 before the first sample."""

    seconds: float = 0.0
    count: int = 0

    def learn(self, seconds: float) -> None:
        self.count += 1
        if self.count == 1 or not self.seconds:
            self.seconds = seconds
            return
        low, high = self.seconds / _OUTLIER, self.seconds * _OUTLIER
        self.seconds += _LEARN * (min(max(seconds, low), high) - self.seconds)


@dataclass(slots=True, eq=False)
class LoadPrices:
    """Value of a cached token: load time per tier relative to compute time.

    Starts from defaults measured with vLLM 0.32 on CPU (800 tokens: cold 5.06 s, from L1 0.29 s,
    from L2 0.55 s; loading is relatively more expensive on a GPU) and learns from answers of idle
    workers, whose TTFT contains no queueing.
    """

    compute: AverageRate = field(default_factory=AverageRate)
    l1_share: float = L1_SHARE
    l2_share: float = L2_SHARE
    _l1: AverageRate = field(default_factory=AverageRate)
    _l2: AverageRate = field(default_factory=AverageRate)

    def saved(self, gpu: int, l1: int, l2: int) -> int:
        return int(gpu * (1 - GPU_SHARE) + l1 * (1 - self.l1_share) + l2 * (1 - self.l2_share))

    def learn(self, prompt: int, cached: int, tiers: tuple[int, int, int], ttft_s: float) -> None:
        """Learn from an answer of an idle worker.

        `prompt`, `cached`: as reported by the engine; `tiers`: as predicted, used only to attribute
        the cached tokens.
        """
        computed = prompt - cached
        if ttft_s <= 0 or prompt < _MIN_TOKENS:
            return
        if cached <= _MAX_MIXED * prompt:
            if computed >= _MIN_TOKENS:
                self.compute.learn(ttft_s / computed)
        elif self.compute.seconds and cached >= _MIN_TOKENS:
            # The price of the computed part includes the fixed cost; the rest is load time.
            loading = max(ttft_s - computed * self.compute.seconds, 0.0) / cached
            _, l1, l2 = tiers
            most = (1 - _MAX_MIXED) * sum(tiers)
            if l1 and l1 >= most:
                self._l1.learn(loading)
                self.l1_share = self._share(self._l1)
            elif l2 and l2 >= most:
                self._l2.learn(loading)
                self.l2_share = self._share(self._l2)

    def _share(self, rate: AverageRate) -> float:
        return min(rate.seconds / self.compute.seconds, 1.0)

    def show(self) -> dict[str, float | int]:
        return {
            "compute_s_per_token": self.compute.seconds,
            "l1_share": round(self.l1_share, 4),
            "l2_share": round(self.l2_share, 4),
            "answers_compute": self.compute.count,
            "answers_l1": self._l1.count,
            "answers_l2": self._l2.count,
        }


NOTHING_CACHED: Final = Match(0, 0, 0, 0)


@dataclass(slots=True, eq=False)
class CachedBlocks:
    """Cached and expected tokens of one prompt, by worker id."""

    workers: Mapping[str, Match]
    pending: Mapping[str, int]
    anywhere: int

    def tiers(self, worker_id: str) -> Match:
        """Return the tokens the worker need not compute; expected blocks count as on the device."""
        worker = self.workers.get(worker_id, NOTHING_CACHED)
        if self.anywhere > worker.tokens:
            worker = Match(
                worker.gpu, worker.l1, self.anywhere - worker.gpu - worker.l1, worker.rank
            )
        coming = self.pending.get(worker_id, 0)
        return Match(coming, 0, 0, worker.rank) if coming > worker.tokens else worker

    def guessed(self, worker_id: str) -> bool:
        """Return True if part of the match is only expected."""
        worker = self.workers.get(worker_id, NOTHING_CACHED)
        return self.pending.get(worker_id, 0) > max(worker.tokens, self.anywhere)


class KvAware(RoutingPolicy):
    name = "kvaware"
    reasons: tuple[str, ...] = (
        *(base.KV_HIT, base.PREFIX_HIT, base.NO_MATCH),
        *(base.LEAST_LOADED, base.UNHEALTHY),
    )
    needs_chain = True

    def __init__(
        self, memory_blocks: int, secret: bytes, by_prefix: PrefixAware | None = None
    ) -> None:
        self.index = Index(secret)
        self.pending = ExpectedBlocks()
        self.index.on_clear = self.pending.cleared
        self.index.on_removed = self.pending.removed
        self.prices = LoadPrices()
        self.believed: Callable[[str], bool] = lambda _worker_id: True
        self.doubted: set[str] = set()  # workers placed by prefix until predictions agree
        self.by_prefix = by_prefix or PrefixAware(memory_blocks)

    def held(self, blocks: Blocks) -> CachedBlocks:
        matches = match(self.index, blocks.chains)
        workers = {name: held for name, held in matches.workers.items() if self.believed(name)}
        reported = {name: held.gpu for name, held in workers.items()}
        coming = self.pending.matched(blocks.chains, reported)
        return CachedBlocks(workers, coming, matches.anywhere)

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
        if self.doubted:
            sent = self.by_prefix.matched(facts)
            for worker_id in self.doubted:
                credit.pop(worker_id, None)
                if (tokens := sent.get(worker_id, 0)) > everywhere:
                    credit[worker_id] = tokens - everywhere
        # Tokens in shared storage are the same for all workers: excluded from the comparison.
        size, names = _smallest_blocks(blocks)
        compared = RequestFacts(names, facts.tokens - everywhere, size, facts.session)
        # Events do not say when a block was used: its age is that of the prompts sent.
        displaced = self.by_prefix.displaced
        pick = ranking.rank(compared, fleet, credit, base.KV_HIT, shown, displaced)
        tiers = {item[0]: held.tiers(item[0]) for item in pick.candidates}
        chosen = held.tiers(pick.worker.id)
        pick.tiers = tiers
        pick.guessed = held.guessed(pick.worker.id)
        pick.cached_tokens = chosen.tokens
        pick.candidates = [(item[0], tiers[item[0]].tokens, *item[2:]) for item in pick.candidates]
        if pick.worker.id in self.doubted and pick.reason == base.KV_HIT:
            pick.reason = base.PREFIX_HIT
        elif chosen.tokens and pick.reason == base.NO_MATCH:
            pick.reason = base.KV_HIT
        return pick

    def sent(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        self.by_prefix.sent(facts, worker)

    def refused(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        self.by_prefix.refused(facts, worker)

    def ended(
        self, facts: RequestFacts, worker: RoutingTarget, prompt: int, cached: int | None
    ) -> None:
        self.by_prefix.ended(facts, worker, prompt, cached)

    def share(self, worker_id: str) -> float:
        return self.by_prefix.share(worker_id)

    def set_share(self, worker_id: str, share: float) -> None:
        self.by_prefix.set_share(worker_id, share)

    def set_capacity(self, worker_id: str, tokens: int, l1_tokens: int = 0) -> None:
        self.by_prefix.set_capacity(worker_id, tokens, l1_tokens)

    def forget(self, worker: RoutingTarget) -> None:
        """Drop a lost worker; its published blocks go with the event source."""
        self.by_prefix.forget(worker)
        self.pending.forget(worker.id)

    def memory(self, worker_id: str, most_blocks: int) -> list[tuple[float, Sequence[int]]]:
        return self.by_prefix.memory(worker_id, most_blocks)

    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for rank in self.index.ranks.values():
            sizes[rank.worker] = sizes.get(rank.worker, 0) + rank.blocks
        return sizes


def _smallest_blocks(blocks: Blocks) -> tuple[int, Sequence[int]]:
    """Return the chain with the smallest blocks, which locates the first new block best."""
    size = min(blocks.chains, default=1)
    return size, blocks.chains.get(size, ())
