"""The I/O of `kvaware`: listens to the workers' events, loads the tokenizer and has it compared.

Promises that the router serves from its first moment, by prefix, while a tokenizer is being loaded
or a worker asked; that local tokens are believed only after they were compared with a worker's;
and that nothing is left running when the strategy changes. Must not know how a worker is chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from routing.engine.ask import AskError, ask
from routing.engine.kv.subscriber import Subscriber, Target
from routing.engine.kvrouting import KvRouting
from routing.engine.tokens import check
from routing.engine.tokens.local import Local
from routing.engine.tokens.requests import ServerDefaults
from routing.engine.tokens.service import MISMATCH, VERIFIED, TokensConfig, TokenService
from routing.engine.tokens.tokenizer import TokenizerUnusable, load

if TYPE_CHECKING:
    from routing.engine.config import KvConfig
    from routing.engine.router import Router
    from routing.engine.workers import Worker

ASK_TIMEOUT_S = 5.0
COMPARE_AGAIN_S = 10.0  # while no worker answered
COMPARE_EVERY_S = 600.0  # a worker may come back with another revision of its model


class Listening:
    """While one KvRouting is in force."""

    def __init__(self, router: Router, routing: KvRouting) -> None:
        self._router = router
        self.routing = routing
        self._config = router.config.kv
        self.subscriber = Subscriber(routing.policy.index, self._say, (AskError,))
        self.report: check.Report | None = None  # the last comparison
        self._registered: set[tuple[str, int]] = set()
        self.problem = ""  # why there is no local tokenizer
        self._mode = asyncio.create_task(self._prepare())
        routing.follower = self
        routing.log_share = router.config.access_log.sample

    def _say(self, level: str, event: str, **facts: Any) -> None:
        self._router.log.event(level, event, **facts)

    def serves(self, routing: KvRouting | None, config: KvConfig) -> bool:
        return routing is self.routing and config == self._config

    # -- workers

    def follow(self) -> None:
        """The workers of the table, and no others."""
        workers = self._router.table.workers
        self.subscriber.follow(self._target(worker) for worker in workers.values())
        for name in set(self.routing.meters) - set(workers):
            self.routing.forget(name)

    def _target(self, worker: Worker) -> Target:
        def question(path: str) -> Awaitable[tuple[int, bytes]]:
            return ask(worker, path, ASK_TIMEOUT_S)

        events = (worker.kv_events,) if worker.kv_events else ()
        replays = (worker.kv_replay,) if worker.kv_replay else ()
        return Target(worker.id, worker.address.host, "", question, events, replays)

    def changed(self, worker: Worker, what: str) -> None:
        """As the table tells it."""
        if what == "up":
            self.subscriber.worker_up(worker.id)
        elif what == "lost":
            self.subscriber.worker_lost(worker.id)
        elif what == "restarted" and worker.started is not None:
            self.subscriber.process_started(worker.id, worker.started)

    def rebuild(self, worker_id: str) -> None:
        """As KvRouting's Follower."""
        self.subscriber.worker_lost(worker_id)
        self.subscriber.worker_up(worker_id)

    def tick(self, now: float) -> None:
        routing = self.routing
        routing.tick(now)
        following = {
            (source["worker"], source["rank"])
            for source in self.subscriber.status()
            if source["state"] == "following"
        }
        for worker, rank in sorted(following - self._registered):
            self._say("info", "Worker registered", worker=worker, rank=rank)
        self._registered = following
        routing.telling = bool(following)
        for worker, _ in following:
            routing.rebuilt(worker)

    # -- tokens

    async def _prepare(self) -> None:
        local = await self._load(self._config)
        wanted = TokensConfig(
            threads=self._config.threads,
            wait_s=self._config.wait_s,
            cache_bytes=self._config.cache_bytes,
        )
        service = self.routing.tokens = TokenService(wanted, local, self._ask_any)
        while local is not None:
            found = await check.compare(local, self._ask_any, self._model(), ASK_TIMEOUT_S)
            if found.verdict != check.UNREACHABLE:
                self._judged(service, found)
            patience = COMPARE_AGAIN_S if self.report is None else COMPARE_EVERY_S
            await asyncio.sleep(patience)

    async def _load(self, config: KvConfig) -> Local | None:
        if config.tokenizer is None:
            self.problem = "no --tokenizer: each prompt is tokenized by a worker"
            return None
        loop = asyncio.get_running_loop()
        path, template = config.tokenizer, config.chat_template
        try:
            files = await loop.run_in_executor(None, load, path, template)
            return Local(files, ServerDefaults())
        except TokenizerUnusable as error:
            self.problem = str(error)
            self._say("error", "tokenizer_unusable", error=self.problem, effect="workers are asked")
            return None

    def _judged(self, service: TokenService, found: check.Report) -> None:
        first = self.report is None or self.report.verdict != found.verdict
        self.report = found
        same = found.verdict == check.SAME
        service.trust = VERIFIED if same else MISMATCH
        if not first:
            return
        if same:
            self._say("info", "tokenizer_verified", prompts=found.compared)
        for finding in found.findings:
            self._say(
                "error",
                "tokenizer_mismatch",
                probe=finding.probe,
                error=finding.what,
                remedy=finding.fix,
                effect="each prompt is tokenized by a worker",
            )

    def _model(self) -> str:
        for worker in self._router.table.eligible:
            for model in worker.models:
                if not model.get("parent"):
                    return str(model.get("id", ""))
        return self._router.config.model

    async def _ask_any(self, path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        """The worker with the least to do. Raises AskError."""
        eligible = self._router.table.eligible
        if not eligible:
            raise AskError("no worker is up")
        return await ask(min(eligible, key=lambda worker: worker.load), path, timeout_s, body)

    # -- the end, and for people

    async def close(self) -> None:
        self._mode.cancel()
        await asyncio.gather(self._mode, return_exceptions=True)
        await self.subscriber.close()
        if self.routing.tokens is not None:
            await self.routing.tokens.close()

    def show(self) -> dict[str, Any]:
        """For /index."""
        report = self.report
        return self.routing.show() | {
            "sources": self.subscriber.status(),
            "tokenizer": {
                "path": str(self._config.tokenizer or ""),
                "problem": self.problem,
                "compared": None if report is None else report.verdict,
                "findings": []
                if report is None
                else [
                    {"probe": one.probe, "what": one.what, "fix": one.fix}
                    for one in report.findings
                ],
            },
        }


class Kvaware:
    """Owned by the server: has a Listening exactly while the strategy is kvaware."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.listening: Listening | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self) -> None:
        """After every change of configuration or workers."""
        listening, routing = self.listening, self._router.kv
        if listening is not None and not listening.serves(routing, self._router.config.kv):
            task = asyncio.create_task(listening.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            self.listening = listening = None
        if routing is not None and listening is None:
            self.listening = listening = Listening(self._router, routing)
        if listening is not None:
            listening.follow()

    def tick(self) -> None:
        if self.listening is not None:
            self.listening.tick(perf_counter())

    async def close(self) -> None:
        if self.listening is not None:
            await self.listening.close()
            self.listening = None
        await asyncio.gather(*self._ending, return_exceptions=True)
