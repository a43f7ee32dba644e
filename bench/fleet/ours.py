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

from bench.fleet.hardware import BLOCK_TOKENS, Hardware
from bench.fleet.peering import DELAY_S, Exchange
from bench.fleet.told import KvFollower
from bench.fleet.worker import FleetWorker, Job
from routing.engine.config import Address, WorkerConfig
from routing.engine.fleet.load import RequestCharge
from routing.engine.fleet.workers import Worker, WorkerTable
from routing.engine.kv.progress import ExpectedPrompt, PrefillProgress, Progress
from routing.engine.peers.outbox import Outbox
from routing.engine.policies import cost
from routing.engine.policies.base import RequestFacts, RoutingPolicy
from routing.engine.policies.kvaware import KvAware
from routing.engine.policies.prefixaware import PrefixAware
from routing.engine.policies.session import RoundRobin, SessionPolicy

CACHE_AWARE = ("kvaware", "prefixaware")  # by known or assumed worker caches
STRATEGIES = (*CACHE_AWARE, "session", "roundrobin")
_BLOCKS = 8_192  # default memory, in the simulation's larger blocks
_SECRET = b"s" * 32


@dataclass(frozen=True)
class Setting:
    """Configuration of a run. `spread`: error factor of the estimated prompt length; `routers`:
    number of routers, each request to one by chance; `shared`: they exchange their state, `delay_s`
    after a change; `told`: they know the workers' memory.
    """

    strategy: str = "prefixaware"
    routers: int = 1
    spread: float = 0.0
    told: bool = True
    shared: bool = False
    delay_s: float = DELAY_S


@contextmanager
def override_constant(name: str, value: float) -> Iterator[None]:
    """Change a constant of the cost formula temporarily."""
    before = getattr(cost, name)
    setattr(cost, name, value)
    try:
        yield
    finally:
        setattr(cost, name, before)


def _policy(strategy: str, count: int, cache_tokens: int) -> RoutingPolicy:
    if strategy == "session":
        return SessionPolicy()
    if strategy == "roundrobin":
        return RoundRobin()
    policy = KvAware(_BLOCKS, _SECRET) if strategy == "kvaware" else PrefixAware(_BLOCKS)
    if cache_tokens:
        for index in range(count):
            policy.set_capacity(f"w{index}", cache_tokens)
    return policy


class RouterModel:
    """Policy, table and ledger of one router."""

    def __init__(self, policy: RoutingPolicy, count: int, chance: random.Random) -> None:
        self.kvaware = policy if isinstance(policy, KvAware) else None
        self.policy = policy
        self.table = WorkerTable(lambda _worker, _what: None)
        self.outbox: Outbox | None = None
        self.table.by_turn = policy.by_turn
        self._picks = 0
        self._charges: dict[object, RequestCharge] = {}
        self._facts: dict[object, RequestFacts] = {}
        self._guesses: dict[object, tuple[ExpectedPrompt, PrefillProgress]] = {}
        self.progress = Progress(self.kvaware.index) if self.kvaware is not None else None
        for index in range(count):
            worker = Worker(WorkerConfig(f"w{index}", "", Address("", 0)))
            worker.last_pick = -chance.getrandbits(48)
            worker.up = True
            self.table.add(worker)
        self.table.refresh()

    def picked(self, worker: Worker) -> None:
        self._picks += 1
        worker.last_pick = self._picks

    def choose(self, facts: RequestFacts, tag: object) -> str:
        pick = self.policy.rank(facts, self.table.fleet)
        worker = self.table.workers[pick.worker.id]
        self.picked(worker)
        self.policy.sent(facts, worker)
        self._facts[tag] = facts
        if self.outbox is not None:
            self.outbox.sent(facts, worker.id)
        charge = self._charges[tag] = RequestCharge(
            worker, max(0, facts.tokens - pick.cached_tokens)
        )
        if self.kvaware is not None and self.progress is not None and facts.blocks is not None:
            chains = facts.blocks.chains
            held = pick.tiers[worker.id].gpu if pick.tiers and not pick.guessed else 0
            guess = self.kvaware.pending.sent(worker.id, chains, held)
            if self.outbox is not None:
                self.outbox.expected(guess)
            self._guesses[tag] = (
                guess,
                self.progress.begins(worker.id, chains, facts.tokens, charge, held),
            )
        return worker.id

    def first(self, tag: object, now: float) -> None:
        self._charges[tag].answered()
        found = self._guesses.pop(tag, None)
        if found is not None and self.kvaware is not None and self.progress is not None:
            self.kvaware.pending.answered(found[0], now)
            if self.outbox is not None:
                self.outbox.answered(found[0])
            self.progress.ends(found[1])

    def done(self, tag: object, prompt: int, cached: int) -> None:
        charge = self._charges.pop(tag)
        charge.end()
        self.policy.ended(
            self._facts.pop(tag), self.table.workers[charge.worker.id], prompt, cached
        )


class RouterChooser:
    def __init__(self, setting: Setting, count: int, hardware: Hardware, seed: int = 0) -> None:
        self.name = setting.strategy
        self._chance = random.Random(seed)
        self._spread = setting.spread
        told = hardware.cache_tokens if setting.told else 0
        self._routers = [
            RouterModel(_policy(setting.strategy, count, told), count, self._chance)
            for _ in range(setting.routers)
        ]
        self._exchange = Exchange(self._routers, setting.delay_s) if setting.shared else None
        self._asked: dict[object, RouterModel] = {}
        self._told: KvFollower | None = None  # worker events, for kvaware

    def look_at(self, workers: list[FleetWorker], /) -> None:
        followers = [router.kvaware for router in self._routers if router.kvaware is not None]
        if followers:
            self._told = KvFollower(followers, workers)

    def choose(self, job: Job, now: float, /) -> int:
        self._advance(now)
        scale = 1 + self._spread * (2 * self._chance.random() - 1)
        facts = RequestFacts(
            job.chain,
            round(job.prompt_tokens * scale),
            BLOCK_TOKENS * scale,
            struct.pack("q", job.session) if job.session >= 0 else b"",
        )
        router = self._chance.choice(self._routers)
        if self._told is not None and router.kvaware is not None:
            for heard in self._told.hear():
                for each in self._routers:
                    if each.progress is not None:
                        each.progress.heard(heard)
            for each in self._routers:
                if each.kvaware is not None:
                    each.kvaware.pending.tick(now)
            facts.blocks = self._told.blocks(job.chain, job.prompt_tokens)
        self._asked[job.tag] = router
        chosen = int(router.choose(facts, job.tag)[1:])
        self._touch(router, now)
        return chosen

    def first(self, job: Job) -> None:
        self._advance(job.first_at)
        router = self._asked[job.tag]
        router.first(job.tag, job.first_at)
        self._touch(router, job.first_at)

    def done(self, job: Job) -> None:
        self._advance(job.done_at)
        router = self._asked.pop(job.tag)
        router.done(job.tag, job.prompt_tokens, job.cached)
        self._touch(router, job.done_at)

    def _advance(self, now: float) -> None:
        if self._exchange is not None:
            self._exchange.advance(now)

    def _touch(self, router: RouterModel, now: float) -> None:
        if self._exchange is not None:
            self._exchange.touch(self._routers.index(router), now)
