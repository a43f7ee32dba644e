"""Policy, table and ledger of one simulated router."""

from __future__ import annotations

import random

from routing.engine.config import Address, WorkerConfig
from routing.engine.fleet.load import RequestCharge
from routing.engine.fleet.pace import PaceMeter
from routing.engine.fleet.workers import Worker, WorkerTable
from routing.engine.kv.progress import ExpectedPrompt, PrefillProgress, Progress
from routing.engine.peers.outbox import Outbox
from routing.engine.policies.base import Pick, RequestFacts, RoutingPolicy
from routing.engine.policies.canary import find_kvaware


class RouterModel:
    def __init__(
        self, policy: RoutingPolicy, count: int, chance: random.Random, cache_tokens: int = 0
    ) -> None:
        """`cache_tokens`: of each worker, if known to the router."""
        self.kvaware = find_kvaware(policy)
        self.policy = policy
        self.table = WorkerTable(lambda _worker, _what: None)
        self.outbox: Outbox | None = None
        self.table.by_turn = policy.by_turn
        self._picks = 0
        self._charges: dict[object, RequestCharge] = {}
        self._facts: dict[object, RequestFacts] = {}
        self.pace = PaceMeter()
        self._guesses: dict[object, tuple[ExpectedPrompt, PrefillProgress]] = {}
        self.progress = Progress(self.kvaware.index) if self.kvaware is not None else None
        for index in range(count):
            worker = Worker(WorkerConfig(f"w{index}", "", Address("", 0)))
            worker.last_pick = -chance.getrandbits(48)
            worker.up = True
            worker.cache_tokens = cache_tokens
            self.table.add(worker)
        self.table.refresh()

    def picked(self, worker: Worker) -> None:
        self._picks += 1
        worker.last_pick = self._picks

    def choose(self, facts: RequestFacts, tag: object) -> str:
        pick = self.policy.rank(facts, self.table.fleet)
        self.place(pick, pick.worker.id, facts, tag)
        return pick.worker.id

    def place(self, pick: Pick, worker_id: str, facts: RequestFacts, tag: object) -> None:
        """Send to a candidate of `pick`, not always the best."""
        worker = self.table.workers[worker_id]
        cached = next(item[1] for item in pick.candidates if item[0] == worker_id)
        self.picked(worker)
        self.policy.sent(facts, worker)
        self._facts[tag] = facts
        if self.outbox is not None:
            self.outbox.sent(facts, worker.id)
        charge = self._charges[tag] = RequestCharge(
            worker, max(0, facts.tokens - cached), facts.tokens, facts.chain
        )
        if self.kvaware is not None and self.progress is not None and facts.blocks is not None:
            chains = facts.blocks.chains
            guessed = pick.guessed
            if worker is not pick.worker:
                guessed = self.kvaware.held(facts.blocks).guessed(worker_id)
            held = pick.tiers[worker.id].gpu if pick.tiers and not guessed else 0
            guess = self.kvaware.pending.sent(worker.id, chains, held)
            if self.outbox is not None:
                self.outbox.expected(guess)
            self._guesses[tag] = (
                guess,
                self.progress.begins(worker.id, chains, facts.tokens, charge, held),
            )

    def first(self, tag: object, now: float, ttft_s: float) -> None:
        charge = self._charges[tag]
        charge.answered()
        self.learn_pace(charge.worker.id, charge.work, ttft_s)
        if self.outbox is not None:
            self.outbox.timed(charge.worker.id, charge.work, ttft_s)
        guess = self._guesses.pop(tag, None)
        if guess is not None and self.kvaware is not None and self.progress is not None:
            self.kvaware.pending.answered(guess[0], now)
            if self.outbox is not None:
                self.outbox.answered(guess[0])
            self.progress.ends(guess[1])

    def learn_pace(self, worker_id: str, work: int, ttft_s: float) -> None:
        self.pace.learn(worker_id, work, ttft_s)
        if self.pace.due:
            self.pace.apply(self.table.eligible)

    def done(self, tag: object, prompt: int, cached: int) -> None:
        charge = self._charges.pop(tag)
        charge.end()
        features = self._facts.pop(tag)
        self.policy.ended(features, self.table.workers[charge.worker.id], prompt, cached)
        if self.outbox is not None:
            worker_id = charge.worker.id
            self.outbox.sent(features, worker_id, self.policy.share(worker_id))
