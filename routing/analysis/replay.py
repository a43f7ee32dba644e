"""Replay of the latest requests under each strategy. Pure.

Runs the strategies' own code. All are measured alike: the tokens of a prompt previously sent to the
chosen worker. Loads are those recorded with each request, so the replay shows placement, not
queueing. Requests without recorded prefixes, sessions or cache events cannot be replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from routing.engine.policies import build_strategy, cost
from routing.engine.policies.base import Fleet, RequestFacts, RoutingPolicy
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.policies.prefixaware import PrefixAware
from routing.engine.strategies import STRATEGIES

_MEMORY_BLOCKS = 1_000_000
_BLOCK_TOKENS = 64.0
MIN_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Result of one strategy. With `why_not` the other fields are meaningless. `known_tokens`: of
    `tokens`, those previously sent to the chosen worker; None without recorded prefixes.
    """

    strategy: str
    current: bool = False
    why_not: str = ""
    requests: int = 0
    moved: int = 0
    tokens: int = 0
    known_tokens: int | None = None
    busiest: float = 0.0  # largest worker's share of requests

    @property
    def known_share(self) -> float | None:
        if self.known_tokens is None or not self.tokens:
            return None
        return self.known_tokens / self.tokens


@dataclass(frozen=True, slots=True)
class _Request:
    facts: RequestFacts
    candidates: list[dict[str, Any]]
    chosen: str


def replay_strategies(records: Sequence[dict[str, Any]], current: str) -> list[ReplayOutcome]:
    """Replay the records (newest first) under each strategy."""
    requests = [record for record in map(_parse_record, reversed(records)) if record is not None]
    chains = any(request.facts.chain for request in requests)
    outcomes = []
    for strategy in STRATEGIES:
        policy = None if strategy == current else build_strategy(strategy, _MEMORY_BLOCKS, b"", ())
        why_not = "" if policy is None else _why_not(policy, current, chains)
        if len(requests) < MIN_REQUESTS:
            why_not = f"Fewer than {MIN_REQUESTS} requests are recorded. Send some requests first."
        if why_not:
            outcomes.append(ReplayOutcome(strategy, strategy == current, why_not))
            continue
        outcomes.append(_replay(strategy, policy, requests, chains))
    return outcomes


def _why_not(policy: RoutingPolicy, current: str, chains: bool) -> str:
    if policy.name == "kvaware":
        return (
            "Needs the workers' KV events, which the router receives only while kvaware is its "
            "strategy. The doctor checks the requirements first."
        )
    if policy.needs_chain and not chains:
        return f"Decisions under {current} record no prefixes."
    if policy.needs_session:
        return f"Decisions under {current} record no sessions."
    return ""


def _parse_record(record: dict[str, Any]) -> _Request | None:
    """Parse a record; None if not replayable (never placed, pinned, other version)."""
    try:
        candidates = [dict(item) for item in record["candidates"]]
        tokens = int(record["prompt_tokens"])
        chain = [int(block, 16) for block in record.get("prefix") or ()]
        chosen = str(record["chosen"])
        blocks = int(record.get("prefix_blocks") or len(chain))
        if not candidates or not chosen or record.get("reason") == "pinned":
            return None
        for item in candidates:
            item["load"] = _load(item, tokens)
    except (KeyError, TypeError, ValueError):
        return None
    size = tokens / blocks if blocks else _BLOCK_TOKENS
    return _Request(RequestFacts(chain, tokens, size, b""), candidates, chosen)


def _load(candidate: dict[str, Any], tokens: int) -> float:
    """Return a worker's load: its cost without this prompt's part."""
    matched = sum(int(value) for value in candidate["matched"].values())
    return max(0.0, float(candidate["score"]) - cost.cost(0.0, max(0, tokens - matched)))


def _replay(
    strategy: str, policy: RoutingPolicy | None, requests: list[_Request], chains: bool
) -> ReplayOutcome:
    """Replay one strategy; `policy` None keeps the recorded placement."""
    targets: dict[str, RoutingTarget] = {}
    memory = PrefixAware(_MEMORY_BLOCKS)
    moved = tokens = cached = 0
    shares: Counter[str] = Counter()
    for turn, request in enumerate(requests, 1):
        fleet = _fleet(request, targets)
        if policy is None:
            chosen = targets.get(request.chosen)
        else:
            chosen = (
                targets[policy.rank(request.facts, fleet).worker.id] if fleet.eligible else None
            )
        if chosen is None:
            continue
        chosen.last_pick = turn
        if policy is not None:
            policy.sent(request.facts, chosen)
        cached += _known_tokens(memory, request.facts, chosen)
        memory.sent(request.facts, chosen)
        moved += chosen.id != request.chosen
        tokens += request.facts.tokens
        shares[chosen.id] += 1
    placed = shares.total()
    busiest = max(shares.values()) / placed if placed else 0.0
    known_tokens = cached if chains else None
    return ReplayOutcome(strategy, policy is None, "", placed, moved, tokens, known_tokens, busiest)


def _known_tokens(memory: PrefixAware, facts: RequestFacts, chosen: RoutingTarget) -> int:
    if not facts.chain:
        return 0
    pick = memory.rank(facts, Fleet((chosen,), []))
    return min(pick.cached_tokens, facts.tokens)


def _fleet(request: _Request, known: dict[str, RoutingTarget]) -> Fleet:
    able: list[RoutingTarget] = []
    others: list[RoutingTarget] = []
    for item in request.candidates:
        name = str(item.get("worker"))
        worker = known.setdefault(name, RoutingTarget(name, len(known)))
        worker.load = float(item["load"])
        worker.in_flight = int(item.get("in_flight") or 0)
        (able if item.get("healthy") else others).append(worker)
    return Fleet(tuple(able), others)
