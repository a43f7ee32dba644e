"""`session`: requests of one session stay on one worker, as long as that worker can carry them.

Rendezvous hashing: every worker draws a number for the session, the highest wins. When workers
come or go only the sessions of those workers move, and routers which know nothing of each other
agree. A session leaves its worker while the bound is exceeded: work above 1.25 times the mean of
all workers, plus what moving costs (the whole prompt computed again).
"""

from __future__ import annotations

import xxhash

from routing.engine.policies import base
from routing.engine.policies.base import Facts, Fleet, Pick, Target

LOAD_BOUND = 1.25  # the usual constant of bounded-load consistent hashing


def _draw(session: bytes, worker: Target) -> int:
    return xxhash.xxh3_64_intdigest(session, worker.seed)


class Session:
    name = "session"
    reasons: tuple[str, ...] = (
        base.SESSION_STICKY,
        base.NO_MATCH,
        base.LEAST_LOADED,
        base.UNHEALTHY,
    )
    needs_chain = False
    needs_session = True

    def rank(self, facts: Facts, fleet: Fleet) -> Pick:
        eligible, others = fleet.eligible, fleet.others
        candidates = [base.candidate(worker, facts.tokens, True) for worker in eligible]
        candidates += [base.candidate(worker, facts.tokens, False) for worker in others]
        session = facts.session
        if not session:
            return Pick(fleet.least_loaded(), base.NO_MATCH, 0, candidates)
        order = sorted(eligible, key=lambda worker: _draw(session, worker), reverse=True)
        mean = sum(worker.load for worker in eligible) / len(eligible)
        bound = LOAD_BOUND * mean + facts.tokens
        chosen = next((worker for worker in order if worker.load <= bound), order[0])
        if chosen is not order[0]:
            return Pick(chosen, base.LEAST_LOADED, 0, candidates)
        highest = _draw(session, chosen)
        if any(_draw(session, worker) > highest for worker in others):
            return Pick(chosen, base.UNHEALTHY, 0, candidates)
        return Pick(chosen, base.SESSION_STICKY, 0, candidates)

    def sent(self, facts: Facts, worker: Target) -> None:
        pass

    def forget(self, worker: Target) -> None:
        pass

    def sizes(self) -> dict[str, int]:
        return {}
