"""Health checks and model discovery of workers.

One GET per worker and interval, jittered, on a dedicated connection so that a full pool does not
affect the check.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from console.processkit.descriptors import NONE_LEFT
from routing.engine.config import HealthConfig
from routing.engine.fleet.probe_request import ProbeError, send_probe
from routing.engine.fleet.progress import ProgressWatch
from routing.engine.fleet.workers import Worker

_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')
_MAX_TOKENS = 10**12
JITTER = 0.1  # share of the interval, to desynchronize workers
FIRST_SPREAD_S = 0.0005  # seconds between the first checks: 1000 workers start within 0.5 s
MODELS_INTERVAL_S = 30.0  # LoRA adapters change while a worker runs


@dataclass(frozen=True, slots=True)
class Vitals:
    """Cache capacity and process start time, None where absent; block size in tokens, or 0."""

    cache_tokens: int | None
    started: float | None
    block_size: int = 0


def _parse_number(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) < 16 else 0


def _cache_tokens(labels: dict[bytes, bytes]) -> int:
    tokens = _parse_number(labels.get(b"kv_cache_size_tokens"))
    if not tokens:
        tokens = _parse_number(labels.get(b"num_gpu_blocks")) * _parse_number(
            labels.get(b"block_size")
        )
    return tokens if tokens <= _MAX_TOKENS else 0


def _lines_starting_with(text: bytes, start: bytes) -> Iterator[bytes]:
    """Yield the rest of each line that begins with `start`, without parsing the whole text."""
    index = -1 if text.startswith(start) else text.find(b"\n" + start)
    matches = index >= 0 or text.startswith(start)
    while matches:
        begin = index + 1 + len(start)
        end = text.find(b"\n", begin)
        yield text[begin:end] if end >= 0 else text[begin:]
        index = text.find(b"\n" + start, begin)
        matches = index >= 0


def parse_vitals(text: bytes) -> Vitals:
    """Parse vLLM's /metrics; sum the engines' caches (one line per data-parallel engine)."""
    engines = [
        dict(_LABEL.findall(line))
        for line in _lines_starting_with(text, b"vllm:cache_config_info{")
    ]
    tokens = sum(map(_cache_tokens, engines))
    block_size = _parse_number(engines[0].get(b"block_size")) if engines else 0
    try:
        since = next(
            (float(line) for line in _lines_starting_with(text, b"process_start_time_seconds ")),
            None,
        )
    except ValueError:
        since = None
    return Vitals(tokens or None, since, block_size)


Verdict = Callable[[Worker, str, bool, bool], None]  # worker, error, refused, silent


def _jittered() -> float:
    return random.uniform(1 - JITTER, 1 + JITTER)


class HealthChecker:
    """One task per worker; `follow` starts and stops them as the fleet changes."""

    def __init__(
        self,
        verdict: Verdict,
        learned: Callable[[], None],
        vitals: Callable[[Worker, Vitals], None],
        progress: ProgressWatch | None = None,
        exhausted: Callable[[], None] = lambda: None,
    ) -> None:
        self._verdict = verdict
        self._exhausted = exhausted
        self._progress = progress
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
                    facts_due = loop.time() + MODELS_INTERVAL_S * _jittered()
            elif not worker.up:
                facts_due = 0.0
            if self._progress is not None and worker.up:
                await self._progress.check(worker, self.config)
            await asyncio.sleep(self.config.interval_s * _jittered())

    async def _probe(self, worker: Worker) -> None:
        config = self.config
        try:
            status, _ = await send_probe(worker, config.path, config.timeout_s)
        except ProbeError as error:
            if str(error) == NONE_LEFT:
                self._exhausted()  # says nothing about the worker
            else:
                self._verdict(worker, f"health check: {error}", error.refused, error.silent)
            return
        error_text = "" if status == 200 else f"health check: status {status}"
        self._verdict(worker, error_text, False, False)

    async def learn_models(self, worker: Worker) -> bool:
        """Query the worker's models now, as after a change of its adapters."""
        return await self._ask_models(worker)

    async def _ask_models(self, worker: Worker) -> bool:
        """Query /v1/models; a worker without it (or with its own key) is accepted."""
        try:
            status, body = await send_probe(worker, "/v1/models", self.config.timeout_s)
            data = orjson.loads(body) if status == 200 else {}
        except (ProbeError, orjson.JSONDecodeError):
            return False
        items = data.get("data") if isinstance(data, dict) else None
        if isinstance(items, list):
            worker.models = [item for item in items[:1000] if isinstance(item, dict)]
            self._learned()
        return True

    async def _ask_metrics(self, worker: Worker) -> None:
        """Read cache capacity and process start from /metrics; defaults apply without it."""
        try:
            status, body = await send_probe(worker, "/metrics", self.config.timeout_s)
        except ProbeError:
            return
        if status == 200:
            self._vitals(worker, parse_vitals(body))
