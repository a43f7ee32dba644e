"""`roundrobin`: each request goes to the worker picked longest ago. Remembers nothing."""

from __future__ import annotations

from routing.engine.policies import base
from routing.engine.policies.base import SHOWN, Facts, Fleet, Pick, Target


class RoundRobin:
    name = "roundrobin"
    reasons: tuple[str, ...] = (base.ROUND_ROBIN,)
    needs_chain = False
    needs_session = False
    by_turn = True

    def rank(self, facts: Facts, fleet: Fleet, shown: int = SHOWN) -> Pick:
        if fleet.order is not None:
            chosen = fleet.order.entries[0][3]
        else:
            chosen = fleet.eligible[0]
            for worker in fleet.eligible:
                if worker.last_pick < chosen.last_pick:
                    chosen = worker
        return base.unmatched(chosen, base.ROUND_ROBIN, facts, fleet, shown)

    def sent(self, facts: Facts, worker: Target) -> None:
        pass

    def set_capacity(self, worker_id: str, tokens: int) -> None:
        pass

    def forget(self, worker: Target) -> None:
        pass

    def sizes(self) -> dict[str, int]:
        return {}
