"""The waist between routing and a strategy: facts about a request in, a Pick out.

Promises that `rank` changes nothing, so that /explain may call it on the live state; only `sent`
and `forget` change a policy's memory. Must not know sockets, HTTP or configuration files.

One cost serves every strategy, in tokens of work: cost.py has the formula, load.py keeps the
numbers. Equal costs go to the worker picked longest ago, never to the first in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from routing.engine.policies import cost
from routing.engine.policies.ring import Ring

if TYPE_CHECKING:
    from routing.engine.kv.match import Match
    from routing.engine.policies.kvaware import Blocks

PREFIX_HIT = "prefix_hit"
KV_HIT = "kv_hit"
SESSION_STICKY = "session_sticky"
ROUND_ROBIN = "round_robin"
NO_MATCH = "fallback_no_match"
LEAST_LOADED = "fallback_least_loaded"
UNHEALTHY = "fallback_unhealthy"
RETRY = "retry"
PINNED = "pinned"
REASONS = (
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


class RoutingTarget(Protocol):
    """What a policy may see of a worker."""

    @property
    def id(self) -> str: ...
    @property
    def slot(self) -> int: ...  # a small number no other worker of the table has
    @property
    def seed(self) -> int: ...
    @property
    def load(self) -> float: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def last_pick(self) -> int: ...


Entry = tuple[
    float, int, str, RoutingTarget
]  # load, last pick, id, worker: in this order they sort


class LoadOrder(Protocol):
    """Many workers by their load: load.Order is one."""

    @property
    def entries(self) -> Sequence[Entry]: ...
    @property
    def total(self) -> float: ...
    @property
    def bits(self) -> int: ...
    def lightest(self, bits: int, turn: int, count: int) -> list[RoutingTarget]: ...
    def some(self, bits: int, turn: int, count: int) -> list[RoutingTarget]: ...
    def up_to(self, good: Callable[[float], bool], bits: int) -> int: ...


class FleetWithout:
    """An order but for some of its workers."""

    __slots__ = ("_order", "bits", "entries", "total")

    def __init__(self, order: LoadOrder, tried: Collection[RoutingTarget]) -> None:
        self._order = order
        self.entries = [entry for entry in order.entries if entry[3] not in tried]
        self.total = sum(entry[0] for entry in self.entries)
        self.bits = order.bits
        for worker in tried:
            self.bits &= ~(1 << worker.slot)

    def lightest(self, bits: int, turn: int, count: int) -> list[RoutingTarget]:
        return self._order.lightest(bits & self.bits, turn, count)

    def some(self, bits: int, turn: int, count: int) -> list[RoutingTarget]:
        return self._order.some(bits & self.bits, turn, count)

    def up_to(self, good: Callable[[float], bool], bits: int) -> int:
        return self._order.up_to(good, bits & self.bits)


class Fleet:
    """The workers of one pick: `eligible` (never empty) can be chosen, `others` are known and
    cannot.

    `order` has the eligible ones from the least loaded up, equals by who was picked longest ago.
    It is there for large fleets only: a few workers are looked at one by one.
    """

    __slots__ = ("_lost_ring", "_ring", "_slots", "eligible", "order", "others", "tried")

    def __init__(
        self,
        eligible: Sequence[RoutingTarget],
        others: Sequence[RoutingTarget] = (),
        order: LoadOrder | None = None,
    ) -> None:
        self.eligible = eligible
        self.others = others
        self.order = order
        self.tried: Collection[RoutingTarget] = ()
        self._slots: dict[str, int] | None = None
        self._ring: Ring | None = None
        self._lost_ring: Ring | None = None

    def __len__(self) -> int:
        return len(self.eligible) + len(self.others)

    def without(self, tried: Collection[RoutingTarget]) -> Fleet:
        """The same but for these; it may have no eligible worker left."""
        rest = Fleet(tuple(w for w in self.eligible if w not in tried), self.others)
        if self.order is not None:
            rest.order = FleetWithout(self.order, tried)
        rest.tried = tried
        rest._ring = self.ring
        return rest

    @property
    def slots(self) -> dict[str, int]:
        """Of all workers, by id."""
        if self._slots is None:
            self._slots = {worker.id: worker.slot for worker in (*self.eligible, *self.others)}
        return self._slots

    @property
    def ring(self) -> Ring:
        """Where keys belong; those in `tried` may be on it."""
        if self._ring is None:
            self._ring = Ring(self.eligible)
        return self._ring

    @property
    def lost_ring(self) -> Ring:
        """Where keys would belong if only the others were there."""
        if self._lost_ring is None:
            self._lost_ring = Ring(self.others)
        return self._lost_ring

    def least_loaded(self) -> RoutingTarget:
        """Of equals the one picked longest ago."""
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
    """What a policy may see of a request.

    `chain`: one hash for each whole block of the prompt, each covering all before it.
    `tokens`: the prompt's length, estimated. `block_tokens`: tokens in one block, on average.
    `session`: b"" for none. `size`: bytes of the prompt if they tell its tokens, else 0.
    `blocks`: the prompt as the workers' caches name it, for kvaware.
    """

    __slots__ = ("block_tokens", "blocks", "chain", "session", "size", "tokens")

    def __init__(
        self,
        chain: Sequence[int],
        tokens: int,
        block_tokens: float,
        session: bytes,
        size: int = 0,
    ) -> None:
        self.chain = chain
        self.tokens = tokens
        self.block_tokens = block_tokens
        self.session = session
        self.size = size
        self.blocks: Blocks | None = None


# worker id, matched tokens, requests in flight, cost, can be chosen
Candidate = tuple[str, int, int, float, bool]


SHOWN = 16  # candidates of a record; a fleet may have a thousand workers


class Pick:
    """The chosen worker and why; `candidates` of all `total`: the chosen, those which know most
    of the prompt, the least loaded, and those which would know it and cannot be chosen."""

    __slots__ = ("cached_tokens", "candidates", "guessed", "reason", "tiers", "total", "worker")

    def __init__(
        self,
        worker: RoutingTarget,
        reason: str,
        cached_tokens: int,
        candidates: list[Candidate],
        total: int,
    ) -> None:
        self.worker = worker
        self.reason = reason
        self.cached_tokens = cached_tokens
        self.candidates = candidates
        self.total = total
        self.tiers: Mapping[str, Match] | None = None  # of the candidates, where events tell
        self.guessed = False  # some of `cached_tokens` was on its way only


class RoutingPolicy(Protocol):
    name: str
    reasons: tuple[str, ...]  # those this strategy can give; counters exist for them at start
    needs_chain: bool
    needs_session: bool
    by_turn: bool  # of a large fleet it wants the order of last picks, not of loads

    def rank(self, facts: RequestFacts, fleet: Fleet, shown: int = SHOWN) -> Pick:
        """Whom to send it to; changes nothing. `shown` bounds the pick's candidates."""

    def sent(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        """The request goes to `worker` now."""

    def set_capacity(self, worker_id: str, tokens: int) -> None:
        """The worker's cache holds so many tokens, as far as it told."""

    def forget(self, worker: RoutingTarget) -> None:
        """`worker` is gone, or has lost its memory."""

    def sizes(self) -> dict[str, int]:
        """Blocks remembered, by worker id."""


def candidate(worker: RoutingTarget, tokens: int, healthy: bool) -> Candidate:
    """A candidate of a strategy which matches nothing."""
    return (worker.id, 0, worker.in_flight, cost.cost(worker.load, tokens), healthy)


def unmatched(
    chosen: RoutingTarget, reason: str, facts: RequestFacts, fleet: Fleet, shown: int
) -> Pick:
    """The Pick of a strategy which matches nothing."""
    tokens = facts.tokens
    if len(fleet) <= shown:
        found = [candidate(worker, tokens, True) for worker in fleet.eligible]
    else:
        found = [candidate(chosen, tokens, True)]
        for worker in lightest(fleet, shown - 1):
            if worker is not chosen:
                found.append(candidate(worker, tokens, True))
    for worker in fleet.others[: shown - len(found)]:
        found.append(candidate(worker, tokens, False))
    return Pick(chosen, reason, 0, found, len(fleet))


def lightest(fleet: Fleet, count: int) -> list[RoutingTarget]:
    """Some of the least loaded; of a small fleet the first ones, which all are looked at."""
    if fleet.order is not None:
        return [entry[3] for entry in fleet.order.entries[:count]]
    return list(fleet.eligible[:count])
