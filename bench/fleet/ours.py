"""The router's own policies and load accounting, driven on the clock of the simulation.

Promises to tell them what the router itself would know at that moment and nothing else: the
request when it comes, its first byte, its end. Nothing of a worker's state is read.
"""

from __future__ import annotations

import random
import struct

from bench.fleet.hardware import BLOCK_TOKENS
from bench.fleet.worker import Job
from routing.engine.config import Address, WorkerConfig
from routing.engine.load import Charge
from routing.engine.policies.base import Facts, Policy
from routing.engine.workers import Table, Worker


class Ours:
    """`spread`: prompts are taken for up to so much longer or shorter than they are."""

    def __init__(self, policy: Policy, count: int, seed: int = 0, spread: float = 0.0) -> None:
        self.name = policy.name
        self._policy = policy
        self._table = Table(lambda _worker, _what: None)
        self._chance = random.Random(seed)
        self._spread = spread
        self._picks = 0
        self._charges: dict[object, Charge] = {}
        self._workers: list[Worker] = []
        for index in range(count):
            worker = Worker(WorkerConfig(f"w{index}", "", Address("", 0)))
            worker.last_pick = -self._chance.getrandbits(48)
            worker.up = True
            self._table.add(worker)
            self._workers.append(worker)
        self._index = {worker.id: index for index, worker in enumerate(self._workers)}

    def choose(self, job: Job, _now: float, /) -> int:
        wrong = 1 + self._spread * (2 * self._chance.random() - 1)
        tokens = max(round(job.prompt_tokens * wrong), len(job.chain) * BLOCK_TOKENS)
        facts = Facts(job.chain, tokens, BLOCK_TOKENS, struct.pack("q", job.session))
        pick = self._policy.rank(facts, self._table.fleet)
        worker = self._table.workers[pick.worker.id]
        self._picks += 1
        worker.last_pick = self._picks
        self._policy.sent(facts, worker)
        self._charges[job.tag] = Charge(worker, facts.tokens - pick.cached_tokens)
        return self._index[worker.id]

    def first(self, job: Job) -> None:
        self._charges[job.tag].answered()

    def done(self, job: Job) -> None:
        self._charges.pop(job.tag).end()
