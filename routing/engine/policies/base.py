"""The waist between routing and a strategy: facts about a request in, a Pick out.

Promises that `rank` changes nothing, so that /explain may call it on the live state; only `sent`
and `forget` change a policy's memory. Must not know sockets, HTTP or configuration files.

One cost serves every strategy, in tokens of work: cost.py has the formula, load.py keeps the
numbers. Equal costs go to the worker picked longest ago, never to the first in the list.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from routing.engine.policies import cost

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


class Target(Protocol):
    """What a policy may see of a worker."""

    @property
    def id(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def load(self) -> float: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def last_pick(self) -> int: ...


Entry = tuple[float, int, str, Target]  # load, last pick, id, worker: in this order they sort


class Fleet:
    """The workers of one pick: `eligible` (never empty) can be chosen, `others` are known and
    cannot.

    `ordered` has the eligible ones from the least loaded up, equals by who was picked longest
    ago. It is there for large fleets only: a few workers are looked at one by one.
    """

    __slots__ = ("eligible", "ordered", "others")

    def __init__(
        self,
        eligible: Sequence[Target],
        others: Sequence[Target] = (),
        ordered: Sequence[Entry] | None = None,
    ) -> None:
        self.eligible = eligible
        self.others = others
        self.ordered = ordered

    def without(self, tried: Collection[Target]) -> Fleet:
        """The same but for these; it may have no eligible worker left."""
        ordered = self.ordered
        if ordered is not None:
            ordered = [entry for entry in ordered if entry[3] not in tried]
        eligible = tuple(worker for worker in self.eligible if worker not in tried)
        return Fleet(eligible, self.others, ordered)

    def least_loaded(self) -> Target:
        """Of equals the one picked longest ago."""
        if self.ordered is not None:
            return self.ordered[0][3]
        best = self.eligible[0]
        for worker in self.eligible:
            if worker.load < best.load or (
                worker.load == best.load and worker.last_pick < best.last_pick
            ):
                best = worker
        return best


class Facts:
    """What a policy may see of a request.

    `chain`: one hash for each whole block of the prompt, each covering all before it.
    `tokens`: the prompt's length. `block_tokens`: tokens in one block. `session`: b"" for none.
    """

    __slots__ = ("block_tokens", "chain", "session", "tokens")

    def __init__(
        self, chain: Sequence[int], tokens: int, block_tokens: int, session: bytes
    ) -> None:
        self.chain = chain
        self.tokens = tokens
        self.block_tokens = block_tokens
        self.session = session


# worker id, matched tokens, requests in flight, cost, can be chosen
Candidate = tuple[str, int, int, float, bool]


class Pick:
    """The chosen worker and why; `candidates` are all that were looked at."""

    __slots__ = ("cached_tokens", "candidates", "reason", "worker")

    def __init__(
        self, worker: Target, reason: str, cached_tokens: int, candidates: list[Candidate]
    ) -> None:
        self.worker = worker
        self.reason = reason
        self.cached_tokens = cached_tokens
        self.candidates = candidates


class Policy(Protocol):
    name: str
    reasons: tuple[str, ...]  # those this strategy can give; counters exist for them at start
    needs_chain: bool
    needs_session: bool

    def rank(self, facts: Facts, fleet: Fleet) -> Pick: ...

    def sent(self, facts: Facts, worker: Target) -> None:
        """The request goes to `worker` now."""

    def forget(self, worker: Target) -> None:
        """`worker` is gone, or has lost its memory."""

    def sizes(self) -> dict[str, int]:
        """Blocks remembered, by worker id."""


def candidate(worker: Target, tokens: int, healthy: bool) -> Candidate:
    """A candidate of a strategy which matches nothing."""
    return (worker.id, 0, worker.in_flight, cost.cost(worker.load, tokens), healthy)
