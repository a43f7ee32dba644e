"""Ranking of workers by matched tokens and load.

Small fleets are compared in full; in large ones only workers whose match can outweigh their load.
Among workers that cost hardly more than the best (cost.slack), a new prefix goes where it displaces
the least recently used blocks. Where several have room it goes by consistent hashing, so that
independent routers agree; other ties go to the least recently picked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from routing.engine.policies import base
from routing.engine.policies import cost as costs
from routing.engine.policies.base import Candidate, Fleet, Pick, RequestFacts
from routing.engine.policies.cost import cost as cost_of
from routing.engine.policies.cost import slack as slack_of
from routing.engine.policies.load_order import LoadOrder, RoutingTarget

Level = tuple[int, int]  # tokens, bits (by slot) of the workers with at least that many
Get = Callable[[str, int], int]
Displaced = Callable[[str, int], int]  # worker id, tokens: see PrefixIndex.displaced
ComparedWorker = tuple[float, int, RoutingTarget, int]  # cost, last pick, worker, matched tokens

MAX_SCANNED: Final = 8  # workers of one level to scan individually
SHOWN_MATCHES, SHOWN_LEAST_LOADED = 8, 4  # candidates shown: best matches, least loaded
MIN_CROWD: Final = 8  # hash only if more than 1 in CROWD workers is near the best


class PrefixKnowledge(Protocol):
    def get(self, worker_id: str, default: int, /) -> int: ...

    @property
    def levels(self) -> Sequence[Level]:
        """Return levels, longest match first. A worker is in the first level it reaches; later
        levels may repeat it.
        """


class SparseKnowledge:
    __slots__ = ("get", "levels")

    def __init__(self, tokens: Mapping[str, int], fleet: Fleet) -> None:
        self.get = tokens.get
        groups: dict[int, int] = {}
        slots = fleet.slots
        for worker_id, token in tokens.items():
            if token and worker_id in slots:
                groups[token] = groups.get(token, 0) | 1 << slots[worker_id]
        self.levels = sorted(groups.items(), reverse=True)


def always_room(_worker_id: str, _tokens: int) -> int:
    return 0


def rank(
    facts: RequestFacts,
    fleet: Fleet,
    matched: Mapping[str, int],
    hit: str,
    shown: int,
    displaced: Displaced = always_room,
) -> Pick:
    """Rank by `matched` tokens per worker id (absent: 0). `hit`: reason of a pick with a match."""
    if fleet.order is None:
        return rank_few(facts, fleet, matched, hit, shown, displaced)
    knowledge = SparseKnowledge(matched, fleet)
    return rank_many(facts, fleet, fleet.order, knowledge, hit, shown, displaced)


def rank_few(
    facts: RequestFacts,
    fleet: Fleet,
    matched_by: Mapping[str, int],
    hit: str,
    shown: int,
    displaced: Displaced = always_room,
) -> Pick:
    tokens = facts.tokens
    eligible = fleet.eligible
    candidates: list[Candidate] = []
    chosen = eligible[0]
    least = -1.0
    matched = most = 0
    get = matched_by.get
    recompute = costs.RECOMPUTE
    for worker in eligible:
        worker_id = worker.id
        has = get(worker_id, 0)
        uncached = tokens - has
        cost = worker.load + (recompute + worker.slowness) * uncached  # cost_of, without its call
        spare = worker.spare
        if uncached > spare:  # costs.shortage
            cost += uncached - spare if spare > 0 else uncached
        candidates.append((worker_id, has, worker.in_flight, cost, True))
        if has > most:
            most = has
        if least < 0 or cost < least or (cost == least and worker.last_pick < chosen.last_pick):
            chosen, least, matched = worker, cost, has
    index = round(matched / facts.block_tokens)
    if index < len(facts.chain):
        limit = least + slack_of(tokens - matched)
        near = {item[0]: item[1] for item in candidates if item[3] <= limit and item[1] >= matched}
        if len(near) > 1:
            ages = {name: displaced(name, tokens - has) for name, has in near.items()}
            oldest = min(ages.values())
            nearest, _ = fleet.ring.find(
                facts.chain[index], lambda worker: ages.get(worker.id) == oldest
            )
            if nearest is not None:
                chosen, matched = nearest, near[nearest.id]
    lost = 0
    if fleet.others:
        away = _ineligible_candidates(facts, fleet, get, shown - len(candidates))
        candidates += away
        lost = max(item[1] for item in away)
    reason = hit if matched else _reason(most, lost)
    return Pick(chosen, reason, matched, candidates, len(eligible) + len(fleet.others))


def _reason(most: int, lost: int) -> str:
    """Return the reason of a pick without a match; `most`: longest match of an eligible worker,
    `lost`: of any other.
    """
    if most:
        return base.LEAST_LOADED
    return base.UNHEALTHY if lost else base.NO_MATCH


def _ineligible_candidates(
    facts: RequestFacts, fleet: Fleet, get: Get, room: int
) -> list[Candidate]:
    """Return ineligible workers, longest match first."""
    tokens = facts.tokens
    ineligible_candidates: list[Candidate] = []
    for worker in fleet.others:
        has = get(worker.id, 0)
        cost = cost_of(worker.load, tokens - has, worker.slowness)
        ineligible_candidates.append((worker.id, has, worker.in_flight, cost, False))
    if len(ineligible_candidates) > max(room, 1):
        ineligible_candidates.sort(key=lambda item: -item[1])
        del ineligible_candidates[max(room, 1) :]
    return ineligible_candidates


# -- large fleets


def rank_many(
    facts: RequestFacts,
    fleet: Fleet,
    order: LoadOrder,
    known: PrefixKnowledge,
    hit: str,
    shown: int,
    displaced: Displaced = always_room,
) -> Pick:
    """Compare only the workers that can win."""
    compared = _possible_winners(facts, order, known)
    best = compared[0]
    for item in compared:
        if item[0] < best[0] or (item[0] == best[0] and item[1] < best[1]):
            best = item
    index = round(best[3] / facts.block_tokens)
    if index < len(facts.chain):
        best = _choose_near(facts, fleet, order, known, best, facts.chain[index], displaced)
    room = max(shown // 4, shown - len(fleet.eligible))
    lost = _ineligible_candidates(facts, fleet, known.get, room) if fleet.others else []
    reason = hit
    if not best[3]:
        most = any(bits & order.bits for _, bits in known.levels)
        reason = _reason(most, max((item[1] for item in lost), default=0))
    candidates = _shown_candidates(facts, fleet, order, known, best, compared, shown - len(lost))
    return Pick(best[2], reason, best[3], candidates + lost, len(fleet))


def _compared_worker(
    facts: RequestFacts, known: PrefixKnowledge, worker: RoutingTarget
) -> ComparedWorker:
    has = known.get(worker.id, 0)
    cost = cost_of(worker.load, facts.tokens - has, worker.slowness)
    return (cost, worker.last_pick, worker, has)


def _possible_winners(
    facts: RequestFacts, order: LoadOrder, known: PrefixKnowledge
) -> list[ComparedWorker]:
    """Return the least loaded worker, and those of each level that can beat it."""
    tokens = facts.tokens
    turn = facts.chain[-1] if facts.chain else 0
    lightest, _, _, first = order.entries[0]
    compared = [_compared_worker(facts, known, first)]
    least = compared[0][0]
    for has, bits in known.levels:
        uncached = tokens - has
        if cost_of(lightest, uncached) > least:
            break  # even idle, no worker of this or a later level can win
        few = bits.bit_count() <= MAX_SCANNED
        for worker in (
            order.some(bits, 0, MAX_SCANNED) if few else order.lightest(bits, turn, MAX_SCANNED)
        ):
            cost = cost_of(worker.load, uncached, worker.slowness)
            compared.append((cost, worker.last_pick, worker, has))
            least = min(least, cost)
    return compared


def _choose_near(
    facts: RequestFacts,
    fleet: Fleet,
    order: LoadOrder,
    known: PrefixKnowledge,
    best: ComparedWorker,
    key: int,
    displaced: Displaced,
) -> ComparedWorker:
    """Return a worker among those that cost hardly more than the best: the one any router would
    choose if it has room, else of some the one that displaces the least recently used blocks.
    """
    uncached = facts.tokens - best[3]
    limit = best[0] + slack_of(uncached)
    bits = order.bits
    if best[3]:
        bits = 0
        for has, who in known.levels:
            if has < best[3]:
                break
            bits |= who
    near = order.up_to(lambda load: cost_of(load, uncached) <= limit, bits)
    if near.bit_count() * MIN_CROWD < len(order.entries):
        return best  # the ring would rarely reach one of them
    nearest, _ = fleet.ring.find(key, lambda worker: near >> worker.slot & 1 != 0)
    chosen = best[2] if nearest is None else nearest
    if age := displaced(chosen.id, uncached):
        for worker in order.some(near, key, MAX_SCANNED):
            older = displaced(worker.id, uncached)
            if older < age:
                chosen, age = worker, older
    return best if chosen is best[2] else _compared_worker(facts, known, chosen)


def _longest_match_first(item: ComparedWorker) -> tuple[int, float]:
    return -item[3], item[0]


def _shown_candidates(
    facts: RequestFacts,
    fleet: Fleet,
    order: LoadOrder,
    known: PrefixKnowledge,
    best: ComparedWorker,
    compared: list[ComparedWorker],
    room: int,
) -> list[Candidate]:
    """Return the chosen worker, the best matches and the least loaded; all if they fit."""
    if len(fleet.eligible) <= room:
        few = {worker.id: _compared_worker(facts, known, worker) for worker in fleet.eligible}
    else:
        few = {best[2].id: best}
        for item in sorted(compared, key=_longest_match_first)[:SHOWN_MATCHES]:
            few.setdefault(item[2].id, item)
        for _, _, worker_id, worker in order.entries[: min(SHOWN_LEAST_LOADED, room - len(few))]:
            if worker_id not in few:
                few[worker_id] = _compared_worker(facts, known, worker)
    return [(worker.id, has, worker.in_flight, cost, True) for cost, _, worker, has in few.values()]
