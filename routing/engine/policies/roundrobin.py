"""`roundrobin`: each request goes to the worker picked longest ago. Remembers nothing."""

from __future__ import annotations

from routing.engine.policies import base
from routing.engine.policies.base import Facts, Fleet, Pick, Target


class RoundRobin:
    name = "roundrobin"
    reasons: tuple[str, ...] = (base.ROUND_ROBIN,)
    needs_chain = False
    needs_session = False

    def rank(self, facts: Facts, fleet: Fleet) -> Pick:
        best = fleet.eligible[0]
        for worker in fleet.eligible:
            if worker.last_pick < best.last_pick:
                best = worker
        candidates = [base.candidate(worker, facts.tokens, True) for worker in fleet.eligible]
        candidates += [base.candidate(worker, facts.tokens, False) for worker in fleet.others]
        return Pick(best, base.ROUND_ROBIN, 0, candidates)

    def sent(self, facts: Facts, worker: Target) -> None:
        pass

    def forget(self, worker: Target) -> None:
        pass

    def sizes(self) -> dict[str, int]:
        return {}
