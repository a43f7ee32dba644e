"""Picks of routers that share their state beside those of one router, on the same traffic.

The one router places; the router that would have had the request ranks the workers, too. Differing
picks show what routers do not share: mean TTFT shows it only over many seeds, since runs diverge
after their first differing pick.
"""

from __future__ import annotations

from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.router_model import RouterModel
from dashboards.insight.whatif.simulation.routers import RouterChooser, RouterSetting, make_policy
from dashboards.insight.whatif.simulation.worker import Job
from routing.engine.peers.outbox import BATCH_INTERVAL_S
from routing.engine.policies.base import RequestFacts
from routing.engine.policies.kvaware import KvAware


class Agreement(RouterChooser):
    """`differing`: picks unlike the one router's; `late` of them: sooner after another request than
    its batch arrives. `excess_tokens`: what they cost more by the one router's knowledge.
    """

    def __init__(self, setting: RouterSetting, count: int, hardware: Hardware, seed: int) -> None:
        super().__init__(setting, count, hardware, seed)
        policy = make_policy(setting, count, hardware)
        if isinstance(policy, KvAware):
            policy.index = self._followers[0].index
        known = hardware.cache_tokens if setting.sizes_known else 0
        self._one = RouterModel(policy, count, self._chance, known)
        self._listening.append(self._one)
        for router in self._routers:  # ties are broken alike
            for name, worker in router.table.workers.items():
                worker.last_pick = self._one.table.workers[name].last_pick
        self._stale_s = BATCH_INTERVAL_S + setting.delay_s
        self._last = -self._stale_s
        self.picks = self.differing = self.late = 0
        self.excess_tokens = 0.0

    def choose(self, job: Job, now: float, /) -> int:
        facts = self._facts(job, now)
        others = RequestFacts(
            facts.chain, facts.tokens, facts.block_tokens, facts.session, facts.size, facts.blocks
        )
        router = self._placed[job.tag] = self._chance.choice(self._routers)
        pick = self._one.policy.rank(facts, self._one.table.fleet)
        other = router.policy.rank(others, router.table.fleet)
        chosen = pick.worker.id
        self.picks += 1
        if other.worker.id != chosen:
            costs = {item[0]: item[3] for item in pick.candidates}
            self.differing += 1
            self.late += now - self._last < self._stale_s
            self.excess_tokens += costs[other.worker.id] - costs[chosen]
        self._last = now
        self._one.place(pick, chosen, facts, job.tag)
        router.place(other, chosen, others, job.tag)
        self._touch(router, now)
        return int(chosen[1:])

    def first(self, job: Job) -> None:
        super().first(job)
        self._one.first(job.tag, job.first_at, job.first_at - job.arrived)

    def done(self, job: Job) -> None:
        super().done(job)
        self._one.done(job.tag, job.prompt_tokens, job.cached)
