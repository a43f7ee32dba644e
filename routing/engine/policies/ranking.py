"""The comparison of workers by strategies which know what a worker has of a prompt.

`Known` says what is known about one prompt; from it and the fleet's load `rank` makes the Pick.
A few workers are all compared. Of many only those which can win: cost grows with the load and
with the tokens not known, so of workers which know equally much only the least loaded counts, and
none counts whose knowledge would not make up for more load than the least. No pick looks at a
thousand workers.

Where a prompt becomes new. A router which is not alone should send it where the others would. So
among workers which know as much as the best and cost hardly more (cost.slack) consistent hashing
decides, by the first block which is not known there. Where a prompt brings no new block, equal
costs go to the worker picked longest ago.

Must not know where the knowledge comes from: memory of what was sent, or events of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from routing.engine.policies import base
from routing.engine.policies.base import (
    Candidate,
    Fleet,
    LoadOrder,
    Pick,
    RequestFacts,
    RoutingTarget,
)
from routing.engine.policies.cost import cost as cost_of
from routing.engine.policies.cost import slack as slack_of

Level = tuple[int, int]  # tokens, and the bits (by slot) of workers which know at least so many
Get = Callable[[str, int], int]
Compared = tuple[float, int, RoutingTarget, int]  # cost, last pick, worker, tokens it knows

FEW = 8  # workers of one level which are looked at one by one
MOST, LIGHTEST = 8, 4  # so many of those which know most and of the least loaded are shown
CROWD = 8  # hashing is asked where more than one in so many workers is near the best


class PrefixKnowledge(Protocol):
    """How many tokens of one prompt workers know."""

    def get(self, worker_id: str, default: int, /) -> int:
        """Of this worker."""

    @property
    def levels(self) -> Sequence[Level]:
        """The most that anybody knows first. A worker may be in all levels which are not above
        what it knows, or in the first of them only."""


class Sparse:
    """What is known, from a mapping of worker ids to tokens."""

    __slots__ = ("get", "levels")

    def __init__(self, tokens: Mapping[str, int], fleet: Fleet) -> None:
        self.get = tokens.get
        groups: dict[int, int] = {}
        slots = fleet.slots
        for worker_id, known in tokens.items():
            if known and worker_id in slots:
                groups[known] = groups.get(known, 0) | 1 << slots[worker_id]
        self.levels = sorted(groups.items(), reverse=True)


def rank(
    facts: RequestFacts, fleet: Fleet, matched: Mapping[str, int], hit: str, shown: int
) -> Pick:
    """`matched`: tokens of this prompt by worker id, those without any may be missing. `hit` is
    the reason of a pick which has some of the prompt."""
    if fleet.order is None:
        return rank_few(facts, fleet, matched, hit, shown)
    return rank_many(facts, fleet, fleet.order, Sparse(matched, fleet), hit, shown)


def rank_few(
    facts: RequestFacts, fleet: Fleet, matched_by: Mapping[str, int], hit: str, shown: int
) -> Pick:
    """Every worker is looked at, in one go."""
    tokens = facts.tokens
    eligible = fleet.eligible
    candidates: list[Candidate] = []
    chosen = eligible[0]
    least = -1.0
    matched = most = 0
    get = matched_by.get
    for worker in eligible:
        worker_id = worker.id
        has = get(worker_id, 0)
        cost = cost_of(worker.load, tokens - has)
        candidates.append((worker_id, has, worker.in_flight, cost, True))
        if has > most:
            most = has
        if least < 0 or cost < least or (cost == least and worker.last_pick < chosen.last_pick):
            chosen, least, matched = worker, cost, has
    at = round(matched / facts.block_tokens)
    if at < len(facts.chain):
        limit = least + slack_of(tokens - matched)
        near = {item[0]: item[1] for item in candidates if item[3] <= limit and item[1] >= matched}
        if len(near) > 1:
            found, _ = fleet.ring.find(facts.chain[at], lambda worker: worker.id in near)
            if found is not None:
                chosen, matched = found, near[found.id]
    lost = 0
    if fleet.others:
        away = _lost(facts, fleet, get, shown - len(candidates))
        candidates += away
        lost = max(item[1] for item in away)
    reason = hit if matched else _reason(most, lost)
    return Pick(chosen, reason, matched, candidates, len(eligible) + len(fleet.others))


def _reason(most: int, lost: int) -> str:
    """Why not for a match: `most` is what any worker knows that can be chosen, `lost` any that
    cannot."""
    if most:
        return base.LEAST_LOADED
    return base.UNHEALTHY if lost else base.NO_MATCH


def _lost(facts: RequestFacts, fleet: Fleet, get: Get, room: int) -> list[Candidate]:
    """Those which cannot be chosen, who know most first."""
    tokens = facts.tokens
    found: list[Candidate] = []
    for worker in fleet.others:
        has = get(worker.id, 0)
        cost = cost_of(worker.load, tokens - has)
        found.append((worker.id, has, worker.in_flight, cost, False))
    if len(found) > max(room, 1):
        found.sort(key=lambda item: -item[1])
        del found[max(room, 1) :]
    return found


# -- many workers: those which can win


def rank_many(
    facts: RequestFacts,
    fleet: Fleet,
    order: LoadOrder,
    known: PrefixKnowledge,
    hit: str,
    shown: int,
) -> Pick:
    """Only those which can win are looked at."""
    compared = _best(facts, order, known)
    best = compared[0]
    for item in compared:
        if item[0] < best[0] or (item[0] == best[0] and item[1] < best[1]):
            best = item
    at = round(best[3] / facts.block_tokens)
    if at < len(facts.chain):
        best = _agreed(facts, fleet, order, known, best, facts.chain[at])
    room = max(shown // 4, shown - len(fleet.eligible))
    lost = _lost(facts, fleet, known.get, room) if fleet.others else []
    reason = hit
    if not best[3]:
        most = any(bits & order.bits for _, bits in known.levels)
        reason = _reason(most, max((item[1] for item in lost), default=0))
    candidates = _few(facts, fleet, order, known, best, compared, shown - len(lost))
    return Pick(best[2], reason, best[3], candidates + lost, len(fleet))


def _compare(facts: RequestFacts, known: PrefixKnowledge, worker: RoutingTarget) -> Compared:
    has = known.get(worker.id, 0)
    return (cost_of(worker.load, facts.tokens - has), worker.last_pick, worker, has)


def _best(facts: RequestFacts, order: LoadOrder, known: PrefixKnowledge) -> list[Compared]:
    """The least loaded of all, and of each level those which can win against it."""
    tokens = facts.tokens
    turn = facts.chain[-1] if facts.chain else 0
    lightest, _, _, first = order.entries[0]
    compared = [_compare(facts, known, first)]
    least = compared[0][0]
    for has, bits in known.levels:
        uncached = tokens - has
        if cost_of(lightest, uncached) > least:
            break  # even without load none of this level, or of one which knows less, can win
        few = bits.bit_count() <= FEW
        for worker in order.some(bits, 0, FEW) if few else order.lightest(bits, turn, FEW):
            cost = cost_of(worker.load, uncached)
            compared.append((cost, worker.last_pick, worker, has))
            least = min(least, cost)
    return compared


def _agreed(
    facts: RequestFacts,
    fleet: Fleet,
    order: LoadOrder,
    known: PrefixKnowledge,
    best: Compared,
    key: int,
) -> Compared:
    """Of those which cost hardly more than the best, the one any router would take."""
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
    if near.bit_count() * CROWD < len(order.entries):
        return best  # the ring would not soon come to one of them
    found, _ = fleet.ring.find(key, lambda worker: near >> worker.slot & 1 != 0)
    return best if found is None else _compare(facts, known, found)


def _most_first(item: Compared) -> tuple[int, float]:
    return -item[3], item[0]


def _few(
    facts: RequestFacts,
    fleet: Fleet,
    order: LoadOrder,
    known: PrefixKnowledge,
    best: Compared,
    compared: list[Compared],
    room: int,
) -> list[Candidate]:
    """The chosen, those which know most, and the least loaded; all, if there is room."""
    if len(fleet.eligible) <= room:
        few = {worker.id: _compare(facts, known, worker) for worker in fleet.eligible}
    else:
        few = {best[2].id: best}
        for item in sorted(compared, key=_most_first)[:MOST]:
            few.setdefault(item[2].id, item)
        for _, _, worker_id, worker in order.entries[: min(LIGHTEST, room - len(few))]:
            if worker_id not in few:
                few[worker_id] = _compare(facts, known, worker)
    return [(worker.id, has, worker.in_flight, cost, True) for cost, _, worker, has in few.values()]
