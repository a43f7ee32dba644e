"""Asks every worker, again and again, whether it is there, and what it serves.

Promises one cheap GET an interval for each worker, spread in time, on a kept connection of its
own so that a full pool cannot make a worker look dead; and no check outliving its worker. Must
not know what a verdict means: the table does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import orjson

from routing.engine.config import HealthConfig
from routing.engine.fleet.probe_request import AskError, ask
from routing.engine.fleet.vitals import Vitals, read
from routing.engine.fleet.workers import Worker

JITTER = 0.1  # of the interval, either way: what began together does not stay together
FIRST_SPREAD_S = 0.0005  # between the first checks of two workers: a thousand in half a second
FACTS_EVERY_S = 30.0  # LoRA adapters come and go while a worker runs


Verdict = Callable[[Worker, str, bool], None]


def _jitter() -> float:
    return random.uniform(1 - JITTER, 1 + JITTER)


class Health:
    """One task for each worker; `follow` starts and ends them as the workers change."""

    def __init__(
        self,
        verdict: Verdict,
        learned: Callable[[], None],
        vitals: Callable[[Worker, Vitals], None],
    ) -> None:
        self._verdict = verdict
        self._learned = learned
        self._vitals = vitals
        self._tasks: dict[Worker, asyncio.Task[None]] = {}
        self.config = HealthConfig()

    def follow(self, workers: list[Worker], config: HealthConfig) -> None:
        self.config = config
        for worker in set(self._tasks) - set(workers):
            self._tasks.pop(worker).cancel()
        new = [worker for worker in workers if worker not in self._tasks]
        for index, worker in enumerate(new):
            self._tasks[worker] = asyncio.create_task(self._watch(worker, index * FIRST_SPREAD_S))

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, worker: Worker, first_s: float) -> None:
        facts_due = 0.0
        loop = asyncio.get_running_loop()
        await asyncio.sleep(first_s)
        while True:
            await self._probe(worker)
            if worker.up and loop.time() >= facts_due:
                await self._ask_metrics(worker)
                if await self._ask_models(worker):
                    facts_due = loop.time() + FACTS_EVERY_S * _jitter()
            elif not worker.up:
                facts_due = 0.0
            await asyncio.sleep(self.config.interval_s * _jitter())

    async def _probe(self, worker: Worker) -> None:
        config = self.config
        try:
            status, _ = await ask(worker, config.path, config.timeout_s)
        except AskError as error:
            self._verdict(worker, f"health check: {error}", error.refused)
            return
        error_text = "" if status == 200 else f"health check: answered {status}"
        self._verdict(worker, error_text, False)

    async def _ask_models(self, worker: Worker) -> bool:
        """Learn /v1/models; a worker without it (or with a key of its own) is fine too."""
        try:
            status, body = await ask(worker, "/v1/models", self.config.timeout_s)
            data = orjson.loads(body) if status == 200 else {}
        except (AskError, orjson.JSONDecodeError):
            return False
        items = data.get("data") if isinstance(data, dict) else None
        if isinstance(items, list):
            worker.models = [item for item in items[:1000] if isinstance(item, dict)]
            self._learned()
        return True

    async def _ask_metrics(self, worker: Worker) -> None:
        """Learn how much it can hold and since when it runs; without it defaults hold."""
        try:
            status, body = await ask(worker, "/metrics", self.config.timeout_s)
        except AskError:
            return
        if status == 200:
            self._vitals(worker, read(body))
