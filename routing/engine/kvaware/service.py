"""Background services of `kvaware`: event subscription, tokenizer loading and verification, probes.

Requests are placed by prefix until the tokenizer is loaded and its tokens match a worker's.
Everything ends when the strategy changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from routing.engine.fleet.probe_request import ProbeError, send_probe
from routing.engine.kv.index import count_blocks
from routing.engine.kv.subscriber import FOLLOWING, Subscriber, SubscriptionTarget
from routing.engine.kvaware.placement import KvRouting
from routing.engine.kvaware.prediction_accuracy import CounterWindow
from routing.engine.kvaware.twin_probe import Prober
from routing.engine.tokens import comparison
from routing.engine.tokens.outcomes import WITH_TOKENS
from routing.engine.tokens.requests import ServerDefaults
from routing.engine.tokens.service import MISMATCH, VERIFIED, TokensConfig, TokenService
from routing.engine.tokens.tokenizer import LocalTokens, TokenizerUnusable, load_model_files

if TYPE_CHECKING:
    from routing.engine.config import KvConfig
    from routing.engine.fleet.workers import Worker
    from routing.engine.kv.match import Match
    from routing.engine.policies.base import Pick, RequestFacts
    from routing.engine.router import Router

ASK_TIMEOUT_S = 5.0
COMPARE_AGAIN_S = 10.0  # while no worker answers
COMPARE_EVERY_S = 600.0  # a worker may return with another model revision


class KvAwareRun:
    """Services of one KvRouting."""

    def __init__(self, router: Router, routing: KvRouting) -> None:
        self._router = router
        self.routing = routing
        self._config = router.config.kv
        self.subscriber = Subscriber(routing.policy.index, self._log, (ProbeError,))
        self.report: comparison.TokenReport | None = None
        self._registered: set[tuple[str, int]] = set()
        self.problem = ""  # why there is no local tokenizer
        self._window = CounterWindow(perf_counter())
        self.prober = Prober(
            router.table,
            routing,
            self._config.probe_interval_s,
            self._model,
            self.subscriber.ranks,
            self._log,
        )
        self._mode = asyncio.create_task(self._prepare())
        self._probing = None
        if self._config.probe_interval_s:
            self._probing = asyncio.create_task(self.prober.run())
        self.subscriber.on_applied = routing.progress.advance_worker
        routing.follower = self
        routing.relearn = self._config.relearn
        routing.log_share = router.config.access_log.sample

    def _log(self, level: str, event: str, **facts: Any) -> None:
        self._router.log.event(level, event, **facts)

    def serves(self, routing: KvRouting | None, config: KvConfig) -> bool:
        return routing is self.routing and config == self._config

    def follow(self) -> None:
        workers = self._router.table.workers
        self.subscriber.follow(self._target(worker) for worker in workers.values())
        for name in set(self.routing.meters) - set(workers):
            self.routing.forget(name)

    def _target(self, worker: Worker) -> SubscriptionTarget:
        def question(path: str) -> Awaitable[tuple[int, bytes]]:
            return send_probe(worker, path, ASK_TIMEOUT_S)

        events = (worker.kv_events,) if worker.kv_events else ()
        replays = (worker.kv_replay,) if worker.kv_replay else ()
        return SubscriptionTarget(worker.id, worker.address.host, "", question, events, replays)

    def changed(self, worker: Worker, what: str) -> None:
        if what == "up":
            self.subscriber.worker_up(worker.id)
        elif what == "lost":
            self.subscriber.worker_lost(worker.id)
            self.routing.ranks.forget(worker.id)
        elif what == "restarted" and worker.started is not None:
            self.subscriber.process_started(worker.id, worker.started)
        elif what == "reset":
            self.subscriber.cache_reset(worker.id)
            self.routing.policy.pending.cleared(worker.id)

    def partial(self, worker_id: str) -> bool:
        return self.subscriber.partial(worker_id)

    def rebuild(self, worker_id: str) -> None:
        self.subscriber.worker_lost(worker_id)
        self.subscriber.worker_up(worker_id)

    def tick(self, now: float) -> None:
        routing = self.routing
        routing.tick(now)
        self._window.mark(now, *self._placed())
        following = {
            (source["worker"], source["rank"])
            for source in self.subscriber.status()
            if source["state"] == FOLLOWING
        }
        for worker, rank in sorted(following - self._registered):
            self._log("info", "Worker registered", worker=worker, rank=rank)
        self._registered = following
        routing.telling = bool(following)
        for worker, _ in following:
            routing.rebuilt(worker)

    async def _prepare(self) -> None:
        local = await self._load(self._config)
        tokens_config = TokensConfig(
            threads=self._config.threads,
            wait_s=self._config.wait_s,
            cache_bytes=self._config.cache_bytes,
        )
        service = self.routing.tokens = TokenService(tokens_config, local, self._ask_any)
        while local is not None:
            comparison_result = await comparison.compare_tokens(
                local, self._ask_any, self._model(), ASK_TIMEOUT_S
            )
            if comparison_result.verdict != comparison.UNREACHABLE:
                self._judged(service, comparison_result)
            patience = COMPARE_AGAIN_S if self.report is None else COMPARE_EVERY_S
            await asyncio.sleep(patience)

    async def _load(self, config: KvConfig) -> LocalTokens | None:
        if config.tokenizer is None:
            self.problem = "no --tokenizer: each prompt is tokenized by a worker"
            return None
        loop = asyncio.get_running_loop()
        path, template = config.tokenizer, config.chat_template
        try:
            files = await loop.run_in_executor(None, load_model_files, path, template)
            return LocalTokens(files, ServerDefaults())
        except TokenizerUnusable as error:
            self.problem = str(error)
            self._log(
                "error", "tokenizer_unusable", error=self.problem, effect="workers tokenize prompts"
            )
            return None

    def _judged(self, service: TokenService, found: comparison.TokenReport) -> None:
        first = self.report is None or self.report.verdict != found.verdict
        self.report = found
        same = found.verdict == comparison.SAME
        service.trust = VERIFIED if same else MISMATCH
        if not first:
            return
        if same:
            self._log("info", "tokenizer_verified", prompts=found.compared)
        for finding in found.findings:
            self._log(
                "error",
                "tokenizer_mismatch",
                probe=finding.probe,
                error=finding.what,
                remedy=finding.fix,
                effect="workers tokenize prompts",
            )

    def _model(self) -> str:
        for worker in self._router.table.eligible:
            for model in worker.models:
                if not model.get("parent"):
                    return str(model.get("id", ""))
        return self._router.config.model

    async def _ask_any(self, path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Query the least loaded worker. Raise AskError."""
        eligible = self._router.table.eligible
        if not eligible:
            raise ProbeError("no worker is up")
        return await send_probe(
            min(eligible, key=lambda worker: worker.load), path, timeout_s, body
        )

    def _placed(self) -> tuple[int, dict[str, int]]:
        service = self.routing.tokens
        total = 0 if service is None else sum(service.counts[name] for name in WITH_TOKENS)
        return total, self.routing.fallbacks

    async def close(self) -> None:
        tasks = [task for task in (self._mode, self._probing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.subscriber.close()
        if self.routing.tokens is not None:
            await self.routing.tokens.close()

    def show(self) -> dict[str, Any]:
        report = self.report
        return self.routing.show() | {
            "sources": self.subscriber.status(),
            "recent": self._window.show(perf_counter(), *self._placed()),
            "tiers": count_blocks(self.subscriber.index),
            "probes": self.prober.show(),
            "tokenizer": {
                "path": str(self._config.tokenizer or ""),
                "problem": self.problem,
                "compared": None if report is None else report.verdict,
                "findings": []
                if report is None
                else [
                    {"probe": finding.probe, "what": finding.what, "fix": finding.fix}
                    for finding in report.findings
                ],
            },
        }

    def explain(self, pick: Pick, facts: RequestFacts, fallback: str) -> dict[str, Any]:
        """Return reported and expected blocks of each candidate, for /explain."""
        policy = self.routing.policy
        reported: Mapping[str, Match] = {}
        coming: Mapping[str, int] = {}
        if facts.blocks is not None:
            held = policy.held(facts.blocks)
            reported, coming = held.workers, held.pending
        prices = policy.prices.show()
        return {
            "fallback": fallback,
            "tokens": "estimated" if facts.blocks is None else "exact",
            "prices": prices,
            "prices_measured": bool(prices["answers_compute"]),
            "workers": {
                item[0]: {
                    "index": self._known(item[0]),
                    "told": reported[item[0]].tokens if item[0] in reported else 0,
                    "on_their_way": coming.get(item[0], 0),
                }
                for item in pick.candidates
            },
        }

    def _known(self, worker_id: str) -> str:
        """Return the index state: "whole", "partial", "not_believed" or "none"."""
        if not self.subscriber.followed(worker_id):
            return "none"
        meter = self.routing.meters.get(worker_id)
        if meter is not None and meter.lying:
            return "not_believed"
        whole = self.subscriber.ranks(worker_id) and not self.subscriber.partial(worker_id)
        return "whole" if whole else "partial"

    def totals(self) -> dict[str, Counter[Any]]:
        service = self.routing.tokens
        return {
            "fallbacks": Counter(self.routing.fallbacks),
            "recoveries": self.subscriber.recoveries(),
            "prompts": Counter() if service is None else Counter(service.counts),
            "relearned": Counter({"": self.routing.relearned}),
        }


class KvAwareService:
    """Owned by the server: has a KvAwareRun while the strategy is kvaware."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.listening: KvAwareRun | None = None
        self._past: dict[str, Counter[Any]] = {}  # totals of ended runs
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self) -> None:
        listening, routing = self.listening, self._router.kv
        if listening is not None and not listening.serves(routing, self._router.config.kv):
            self._past = self.totals()
            task = asyncio.create_task(listening.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            self.listening = listening = None
        if routing is not None and listening is None:
            self.listening = listening = KvAwareRun(self._router, routing)
        if listening is not None:
            listening.follow()

    def tick(self) -> None:
        if self.listening is not None:
            self.listening.tick(perf_counter())

    def totals(self) -> dict[str, Counter[Any]]:
        """Return totals since process start, over all runs."""
        now = {} if self.listening is None else self.listening.totals()
        names = {*self._past, *now}
        empty: Counter[Any] = Counter()
        return {name: self._past.get(name, empty) + now.get(name, empty) for name in names}

    async def close(self) -> None:
        if self.listening is not None:
            await self.listening.close()
            self.listening = None
        await asyncio.gather(*self._ending, return_exceptions=True)
