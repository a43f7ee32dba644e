"""Execute a task: run the load, read the workers' counters, report progress every second.

Prompt tokens by source include other clients' traffic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from console.processkit.metrics import MetricSample, parse_samples, total
from dashboards.benchmarks.generator.files import ABORTED, DONE, RUNNING, Task
from dashboards.benchmarks.generator.load import Load
from dashboards.benchmarks.generator.samples import RequestSample, result, summarize_values
from dashboards.benchmarks.generator.wire import BrokenError, HttpTarget
from dashboards.boards.queries.metric_names import CACHED, PROMPT

REPORT_INTERVAL_S = 1.0
# A generator above these limits distorts its measurements.
MAX_LAG_S = 0.05
MAX_CPU_SHARE = 0.8
BUSY_AFTER_S = 1.0  # shorter spans are dominated by process start
_RECENT = 2000

Publish = Callable[[dict[str, Any]], None]


class Player:
    """Sender of a job's requests. `abort` is safe to call from a signal handler."""

    def __init__(self, task: Task, publish: Publish) -> None:
        self._task = task
        self.publish = publish
        self._target = HttpTarget(task.url, task.key)
        self._watcher = TierCounterReader(task.workers)
        self.load = Load(task.job, self._target, task.model)
        self._aborted = False
        self._cpu = self._wall = 0.0
        self._started_at = time.time()

    def abort(self) -> None:
        self._aborted = True
        self.load.abort("aborted")

    @property
    def samples(self) -> list[RequestSample]:
        return self.load.samples

    async def play(self) -> dict[str, Any]:
        """Return the last progress, which was reported, too."""
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        self._started_at = time.time()
        await self._watcher.poll()
        if self._aborted:
            return self._picture(ABORTED)
        asides = [asyncio.create_task(self._watching()), asyncio.create_task(self._telling())]
        try:
            await self.load.run()
            last = self._picture(ABORTED if self._aborted else DONE)
            self._count_tiers(await self._watcher.poll())
            last = {**last, **self._tokens(), "series": self.load.series.document()}
        finally:
            for aside in asides:
                aside.cancel()
            await asyncio.gather(*asides, return_exceptions=True)
            self._watcher.close()
            self._target.close()
        self.publish(last)
        return last

    async def _watching(self) -> None:
        while True:
            await asyncio.sleep(READ_INTERVAL_S)
            self._count_tiers(await self._watcher.poll())

    async def _telling(self) -> None:
        while True:
            self.publish(self._picture(RUNNING))
            await asyncio.sleep(REPORT_INTERVAL_S)

    def _count_tiers(self, grown: dict[str, float]) -> None:
        """Spread growth over the time since the previous reading, possibly several points of a
        chart.
        """
        now, series = self.load.elapsed, self.load.series
        parts = max(1, round(READ_INTERVAL_S / series.width_s))
        for part in range(parts):
            tiers = series.at(now - part * series.width_s).tiers
            for tier, tokens in grown.items():
                tiers[tier] = tiers.get(tier, 0.0) + tokens / parts

    def _tokens(self) -> dict[str, Any]:
        return {
            "tiers": {tier: round(tokens) for tier, tokens in self._watcher.totals.items()},
            "unseen": dict(self._watcher.unseen),
        }

    def _picture(self, state: str) -> dict[str, Any]:
        load, elapsed = self.load, self.load.elapsed
        ended = state != RUNNING
        samples = load.samples
        span = elapsed - load.job.warmup_s
        good = [sample for sample in samples[-_RECENT:] if sample.ok]
        state_now = {
            "state": state,
            "at": time.time(),
            "started_at": self._started_at,
            "elapsed_s": round(elapsed, 2),
            "sent": load.sent,
            "in_flight": load.in_flight,
            "done": len(samples) - sum(load.errors.values()),
            "errors": dict(load.errors),
            "examples": dict(load.examples),
            "not_sent": load.skipped,
            "tokens": load.tokens,
            "stopped_by": load.stopped_by,
            "series": load.series.document(),
            "now": {
                "ttft": summarize_values(sample.ttft_s for sample in good),
                "tpot": summarize_values(sample.tpot_s for sample in good),
                "lag": summarize_values(sample.lag_s for sample in good),
            },
            "generator": self._generator(samples),
            **self._tokens(),
        }
        return {**state_now, "result": result(samples, load.gaps, span)} if ended else state_now

    def _generator(self, samples: list[RequestSample]) -> dict[str, Any]:
        """Return the load of this process itself; CPU and wall time count from the same moment."""
        lags = summarize_values(sample.lag_s for sample in samples[-_RECENT:])
        wall_s = time.perf_counter() - self._wall
        busy = (time.process_time() - self._cpu) / max(wall_s, 1e-3)
        late = (lags["p99"] or lags["max"] or 0.0) > MAX_LAG_S
        return {
            "cpu_share": round(busy, 3),
            "late": late,
            "busy": busy > MAX_CPU_SHARE and wall_s >= BUSY_AFTER_S,
            "connections": self._target.opened,
        }


READ_INTERVAL_S = 2.0
_DEADLINE_S = 2.0
COMPUTED = "computed"
TIERS = {"device": "device", "host": "l1", "disk": "l2", "p2p": "l2", "external_unspecified": "l2"}


class TierCounterReader:
    """Reads all workers concurrently. `workers` maps names to URLs."""

    def __init__(self, workers: Mapping[str, str]) -> None:
        self._targets = {name: HttpTarget(url) for name, url in workers.items()}
        self._last: dict[str, dict[str, float]] = {}
        self.unseen: dict[str, str] = {}
        self.totals: dict[str, float] = {}

    async def poll(self) -> dict[str, float]:
        """Return tokens by tier since the previous reading; empty at the first."""
        answers = await asyncio.gather(*(self._one(name) for name in self._targets))
        grown: dict[str, float] = {}
        for name, now in zip(self._targets, answers, strict=True):
            if now is None:
                continue
            before = self._last.get(name)
            self._last[name] = now
            if before is None or any(now[tier] < before[tier] for tier in now):
                continue  # first reading, or the worker restarted
            for tier, value in now.items():
                grown[tier] = grown.get(tier, 0.0) + value - before[tier]
        for tier, value in grown.items():
            self.totals[tier] = self.totals.get(tier, 0.0) + value
        return grown

    async def _one(self, name: str) -> dict[str, float] | None:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                reply = await self._targets[name].get("/metrics")
        except (BrokenError, TimeoutError):
            self.unseen[name] = "does not respond"
            return None
        if reply.status != 200:
            self.unseen[name] = f"returned HTTP {reply.status}"
            return None
        counters = parse_tiers(parse_samples(reply.body.decode(errors="replace"), "vllm:"))
        if counters is None:
            self.unseen[name] = "has no counters by tier"
        else:
            self.unseen.pop(name, None)
        return counters

    def close(self) -> None:
        for target in self._targets.values():
            target.close()


def parse_tiers(samples: list[MetricSample]) -> dict[str, float] | None:
    """Return tokens by tier since the worker's start; None without such counters."""
    prompt = total(samples, PROMPT)
    if prompt is None or total(samples, CACHED) is None:
        return None
    tiers = dict.fromkeys(("device", "l1", "l2"), 0.0)
    for source, tier in TIERS.items():
        tiers[tier] += total(samples, CACHED, source=source) or 0.0
    tiers[COMPUTED] = max(0.0, prompt - sum(tiers.values()))
    return tiers
