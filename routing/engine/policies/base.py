"""Interface of routing policies: RequestFacts in, Pick out.

`rank` has no side effects (/explain runs it on live state); only `sent` and `forget` change a
policy. All strategies share one cost in tokens of work (cost.py; load.py keeps the counters). Ties
go to the least recently picked worker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from routing.engine.policies import cost
from routing.engine.policies.load_order import FleetWithout, HashRing, LoadOrder, RoutingTarget

if TYPE_CHECKING:
    from routing.engine.kv.match import Blocks, Match

PREFIX_HIT: Final = "prefix_hit"
KV_HIT: Final = "kv_hit"
SESSION_STICKY: Final = "session_sticky"
ROUND_ROBIN: Final = "round_robin"
NO_MATCH: Final = "fallback_no_match"
LEAST_LOADED: Final = "fallback_least_loaded"
UNHEALTHY: Final = "fallback_unhealthy"
RETRY: Final = "retry"
PINNED: Final = "pinned"
REASONS: Final = (
    PREFIX_HIT,
    KV_HIT,
    SESSION_STICKY,
    ROUND_ROBIN,
    NO_MATCH,
    LEAST_LOADED,
    UNHEALTHY,
    RETRY,
    PINNED,
)


@dataclass(slots=True, eq=False)
class Fleet:
    """Workers available to a pick: `eligible` (never empty) can be chosen, `others` cannot.

    `order`: eligible workers by load, ties by least recent pick; set for large fleets only, small
    ones are scanned.
    """

    eligible: Sequence[RoutingTarget]
    others: Sequence[RoutingTarget] = ()
    order: LoadOrder | None = None
    tried: Collection[RoutingTarget] = field(default=(), init=False)
    _slots: dict[str, int] | None = field(default=None, init=False)
    _ring: HashRing | None = field(default=None, init=False)
    _lost_ring: HashRing | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.eligible) + len(self.others)

    def without(self, tried: Collection[RoutingTarget]) -> Fleet:
        """Return the fleet without these workers; it may have no eligible one left."""
        rest = Fleet(tuple(w for w in self.eligible if w not in tried), self.others)
        if self.order is not None:
            rest.order = FleetWithout(self.order, tried)
        rest.tried = (*self.tried, *tried) if self.tried else tried
        rest._ring = self.ring
        return rest

    @property
    def slots(self) -> dict[str, int]:
        if self._slots is None:
            self._slots = {worker.id: worker.slot for worker in (*self.eligible, *self.others)}
        return self._slots

    @property
    def ring(self) -> HashRing:
        """Return the hash ring of eligible workers; it may contain those in `tried`."""
        if self._ring is None:
            self._ring = HashRing(self.eligible)
        return self._ring

    @property
    def lost_ring(self) -> HashRing:
        if self._lost_ring is None:
            self._lost_ring = HashRing(self.others)
        return self._lost_ring

    def least_loaded(self) -> RoutingTarget:
        """Return the least loaded worker; ties by least recent pick."""
        if self.order is not None:
            return self.order.entries[0][3]
        best = self.eligible[0]
        for worker in self.eligible:
            if worker.load < best.load or (
                worker.load == best.load and worker.last_pick < best.last_pick
            ):
                best = worker
        return best

    def mean_load(self) -> float:
        if self.order is not None:
            return self.order.total / len(self.order.entries)
        return sum(worker.load for worker in self.eligible) / len(self.eligible)


class RequestFacts:
    """Policies' view of a request.

    `chain`: one cumulative hash per whole prompt block. `tokens`: estimated prompt length.
    `block_tokens`: mean tokens per block. `session`: b"" for none. `size`: prompt bytes if they
    predict its tokens, else 0. `blocks`: the prompt's KV blocks, for kvaware. `arm`: of a
    canary (policies.canary). `known_blocks`, `records`: as sent, for
    `PrefixIndex.retract`.
    """

    __slots__ = (
        "arm", "block_tokens", "blocks", "chain", "known_blocks", "known_tokens", "records",
        "session", "size", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        chain: Sequence[int],
        tokens: int,
        block_tokens: float,
        session: bytes,
        size: int = 0,
        blocks: Blocks | None = None,
    ) -> None:
        self.chain = chain
        self.tokens = tokens
        self.block_tokens = block_tokens
        self.session = session
        self.size = size
        self.blocks = blocks
        self.arm = 0
        self.known_tokens = 0.0
        self.known_blocks = 0
        self.records = (0, 0)


# worker id, matched tokens, in-flight requests, cost, eligible
Candidate = tuple[str, int, int, float, bool]


MAX_CANDIDATES: Final = 16


class Pick:
    """Chosen worker and reason.

    `candidates` of all `total`: the chosen one, the best matches, the least loaded, and ineligible
    ones with a match.
    """

    __slots__ = ("cached_tokens", "candidates", "guessed", "reason", "tiers", "total", "worker")

    def __init__(
        self,
        worker: RoutingTarget,
        reason: str,
        cached_tokens: int,
        candidates: list[Candidate],
        total: int,
        tiers: Mapping[str, Match] | None = None,
        guessed: bool = False,
    ) -> None:
        self.worker = worker
        self.reason = reason
        self.cached_tokens = cached_tokens
        self.candidates = candidates
        self.total = total
        self.tiers = tiers  # per candidate, from KV events
        self.guessed = guessed  # part of `cached_tokens` is expected, not reported


class RoutingPolicy:
    """Base of the strategies. By default they remember nothing."""

    name: str
    reasons: tuple[str, ...]  # reasons of this strategy; counters exist from the start
    needs_chain: bool = False
    needs_session: bool = False
    by_turn: bool = False  # large fleets: order by last pick instead of load

    def rank(self, facts: RequestFacts, fleet: Fleet, shown: int = MAX_CANDIDATES) -> Pick:
        """Return the pick without side effects; `shown` bounds its candidates."""
        raise NotImplementedError

    def sent(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        pass

    def ended(
        self, facts: RequestFacts, worker: RoutingTarget, prompt: int, cached: int | None
    ) -> None:
        """Learn from a complete answer. `prompt`, `cached`: tokens as reported; None: unknown."""

    def refused(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        """Forget a prompt that its worker rejected without computing it."""

    def share(self, _worker_id: str) -> float:
        """Return the usable share of a worker's cache learned from answers; 0: none yet."""
        return 0.0

    def set_share(self, worker_id: str, share: float) -> None:
        """Adopt the share that a peer learned."""

    def set_capacity(self, worker_id: str, tokens: int, l1_tokens: int = 0) -> None:
        """Set the cache size of a worker in tokens; `l1_tokens` 0: no L1, or of unknown size."""

    def forget(self, worker: RoutingTarget) -> None:
        """Drop the memory of a worker that is gone or lost its cache."""

    def memory(self, _worker_id: str, _most_blocks: int) -> list[tuple[float, Sequence[int]]]:
        """Return tokens per block and hashes of the prefixes remembered of a worker, least recently
        used first, for a new router's `sent`.
        """
        return []

    def sizes(self) -> dict[str, int]:
        return {}


def candidate_without_match(worker: RoutingTarget, tokens: int, healthy: bool) -> Candidate:
    return (worker.id, 0, worker.in_flight, cost.cost(worker.load, tokens), healthy)


def pick_without_match(
    chosen: RoutingTarget, reason: str, facts: RequestFacts, fleet: Fleet, shown: int
) -> Pick:
    tokens = facts.tokens
    if len(fleet) <= shown:
        candidates = [candidate_without_match(worker, tokens, True) for worker in fleet.eligible]
    else:
        candidates = [candidate_without_match(chosen, tokens, True)]
        for worker in least_loaded_of(fleet, shown - 1):
            if worker is not chosen:
                candidates.append(candidate_without_match(worker, tokens, True))
    for worker in fleet.others[: shown - len(candidates)]:
        candidates.append(candidate_without_match(worker, tokens, False))
    return Pick(chosen, reason, 0, candidates, len(fleet))


def least_loaded_of(fleet: Fleet, count: int) -> list[RoutingTarget]:
    """Return some of the least loaded workers; in a small fleet the first ones."""
    if fleet.order is not None:
        return [entry[3] for entry in fleet.order.entries[:count]]
    return list(fleet.eligible[:count])
