"""`session`: sticky sessions by consistent hashing with a load bound; also round robin.

When workers change, only their sessions move, and independent routers agree. A session moves to the
next worker on the ring while the bound (cost.session_bound) is exceeded.
"""

from __future__ import annotations

import xxhash

from routing.engine.policies import base, cost
from routing.engine.policies.base import MAX_CANDIDATES, Fleet, Pick, RequestFacts, RoutingPolicy
from routing.engine.policies.load_order import RoutingTarget


class SessionPolicy(RoutingPolicy):
    name = "session"
    reasons: tuple[str, ...] = (
        *(base.SESSION_STICKY, base.NO_MATCH),
        *(base.LEAST_LOADED, base.UNHEALTHY),
    )
    needs_session = True

    def rank(self, facts: RequestFacts, fleet: Fleet, shown: int = MAX_CANDIDATES) -> Pick:
        chosen, reason = self._choose(facts, fleet)
        return base.pick_without_match(chosen, reason, facts, fleet, shown)

    @staticmethod
    def _choose(facts: RequestFacts, fleet: Fleet) -> tuple[RoutingTarget, str]:
        if not facts.session:
            return fleet.least_loaded(), base.NO_MATCH
        key = xxhash.xxh3_64_intdigest(facts.session)
        tried = fleet.tried
        home, distance = fleet.ring.find(key, (lambda w: w not in tried) if tried else None)
        if home is None:
            return fleet.least_loaded(), base.LEAST_LOADED
        bound = cost.session_bound(fleet.mean_load(), facts.tokens)
        if home.load > bound:
            next_home, _ = fleet.ring.find(key, lambda w: w.load <= bound and w not in tried)
            return next_home or fleet.least_loaded(), base.LEAST_LOADED
        if fleet.others and fleet.lost_ring.find(key)[1] < distance:
            return home, base.UNHEALTHY
        return home, base.SESSION_STICKY


class RoundRobin(RoutingPolicy):
    name = "roundrobin"
    reasons: tuple[str, ...] = (base.ROUND_ROBIN,)
    by_turn = True

    def rank(self, facts: RequestFacts, fleet: Fleet, shown: int = MAX_CANDIDATES) -> Pick:
        if fleet.order is not None:
            chosen = fleet.order.entries[0][3]
        else:
            chosen = fleet.eligible[0]
            for worker in fleet.eligible:
                if worker.last_pick < chosen.last_pick:
                    chosen = worker
        return base.pick_without_match(chosen, base.ROUND_ROBIN, facts, fleet, shown)
