"""The router's policies and load accounting, driven by the simulation clock.

They receive only what a router would at that time: request, first byte, end, and for kvaware the
workers' events. No other state of a worker is read.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.kv_follower import KvFollower
from dashboards.insight.whatif.simulation.router_model import RouterModel
from dashboards.insight.whatif.simulation.state_exchange import DELAY_S, StateExchange
from dashboards.insight.whatif.simulation.worker import FleetWorker, Job
from routing.engine.policies import PLAIN, build_strategy, cost
from routing.engine.policies.base import RequestFacts, RoutingPolicy
from routing.engine.policies.canary import CANDIDATE, CanaryPolicy, find_kvaware

CACHE_AWARE = ("kvaware", "prefixaware")  # by known or assumed worker caches
STRATEGIES = (*CACHE_AWARE, *PLAIN)
_MEMORY_TOKENS = 4_194_304  # default memory of a worker's prefixes
_SECRET = b"s" * 32


@dataclass(frozen=True)
class RouterSetting:
    """Configuration of a run. `spread`: error factor of the estimated prompt length; `routers`:
    number of routers, each request to one by chance; `shared`: they exchange their state, `delay_s`
    after a change; `sizes_known`: the workers' memory is known; `candidate`: strategy of a canary,
    for the requests that it placed when they were recorded.
    """

    strategy: str = "prefixaware"
    routers: int = 1
    spread: float = 0.0
    sizes_known: bool = True
    shared: bool = False
    delay_s: float = DELAY_S
    candidate: str = ""


@contextmanager
def override_constant(name: str, value: float) -> Iterator[None]:
    """Change a constant of the cost formula temporarily."""
    before = getattr(cost, name)
    setattr(cost, name, value)
    try:
        yield
    finally:
        setattr(cost, name, before)


def make_policy(setting: RouterSetting, count: int, hardware: Hardware) -> RoutingPolicy:
    blocks = _MEMORY_TOKENS // hardware.block_tokens
    policy = build_strategy(setting.strategy, blocks, _SECRET, ())
    if setting.candidate:
        candidate = build_strategy(setting.candidate, blocks, _SECRET, (policy,))
        policy = CanaryPolicy(policy, candidate)
    kvaware = find_kvaware(policy)
    if kvaware is not None and hardware.prefill_s:
        # The shares that the router learns from idle workers.
        if hardware.l1 is not None:
            kvaware.prices.l1_share = min(hardware.l1.load_s / hardware.prefill_s, 1.0)
        if hardware.l2 is not None:
            kvaware.prices.l2_share = min(hardware.l2.load_s / hardware.prefill_s, 1.0)
    if setting.sizes_known:
        l1 = hardware.l1.tokens if hardware.l1 is not None else 0
        for index in range(count):
            policy.set_capacity(f"w{index}", hardware.cache_tokens, l1)
    return policy


class RouterChooser:
    def __init__(
        self, setting: RouterSetting, count: int, hardware: Hardware, seed: int = 0
    ) -> None:
        self.name = setting.strategy
        self._chance = random.Random(seed)
        self._spread = setting.spread
        self._block_tokens = hardware.block_tokens
        cache_tokens = hardware.cache_tokens if setting.sizes_known else 0
        policies = [make_policy(setting, count, hardware) for _ in range(setting.routers)]
        self._candidate = setting.candidate
        self._followers = [policy for policy in map(find_kvaware, policies) if policy is not None]
        for policy in self._followers:
            policy.index = self._followers[0].index  # the same events: followed once
        self._routers = [
            RouterModel(policy, count, self._chance, cache_tokens) for policy in policies
        ]
        self._listening = list(self._routers)  # to events
        self._exchange = StateExchange(self._routers, setting.delay_s) if setting.shared else None
        self._placed: dict[object, RouterModel] = {}
        self._follower: KvFollower | None = None  # worker events, for kvaware

    def observe(self, workers: list[FleetWorker], /) -> None:
        if self._followers:
            self._follower = KvFollower(self._followers[:1], workers)
            if self._exchange is not None:
                # Routers publish progress when events arrive, not at their next request.
                for worker in workers:
                    worker.published = self._apply_events

    def choose(self, job: Job, now: float, /) -> int:
        features = self._facts(job, now)
        router = self._placed[job.tag] = self._chance.choice(self._routers)
        chosen = int(router.choose(features, job.tag)[1:])
        self._touch(router, now)
        return chosen

    def _facts(self, job: Job, now: float) -> RequestFacts:
        """Return the routers' facts of a request, after all messages and events before it."""
        self._advance(now)
        scale = 1 + self._spread * (2 * self._chance.random() - 1)
        request_facts = RequestFacts(
            job.chain,
            round(job.prompt_tokens * scale),
            self._block_tokens * scale,
            struct.pack("q", job.session) if job.session >= 0 else b"",
        )
        if self._candidate and job.strategy == self._candidate:
            request_facts.arm = CANDIDATE
        if self._follower is not None:
            self._apply_events(now)
            for each in self._listening:
                if each.kvaware is not None:
                    each.kvaware.pending.tick(now)
            request_facts.blocks = self._follower.blocks(job.chain, job.prompt_tokens)
        return request_facts

    def _apply_events(self, now: float) -> None:
        assert self._follower is not None
        self._advance(now)
        for worker in self._follower.apply():
            for each in self._listening:
                if each.progress is not None and each.progress.advance_worker(worker):
                    self._touch(each, now)  # the load of its prompts has changed

    def first(self, job: Job) -> None:
        self._advance(job.first_at)
        router = self._placed[job.tag]
        router.first(job.tag, job.first_at, job.first_at - job.arrived)
        self._touch(router, job.first_at)

    def done(self, job: Job) -> None:
        self._advance(job.done_at)
        router = self._placed.pop(job.tag)
        router.done(job.tag, job.prompt_tokens, job.cached)
        self._touch(router, job.done_at)

    def _advance(self, now: float) -> None:
        if self._exchange is not None:
            self._exchange.advance(now)

    def _touch(self, router: RouterModel, now: float) -> None:
        if self._exchange is not None and router.outbox is not None:
            self._exchange.touch(self._routers.index(router), now)
