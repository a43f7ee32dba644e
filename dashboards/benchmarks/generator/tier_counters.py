"""Prompt tokens by source during a run, from the workers' counters, including other clients'
traffic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from console.processkit.metrics import MetricSample, parse_samples, total
from dashboards.benchmarks.generator.wire import BrokenError, HttpTarget
from dashboards.boards.queries.metric_names import CACHED, PROMPT

READ_INTERVAL_S = 2.0
_DEADLINE_S = 2.0
COMPUTED = "computed"
TIERS = {
    "device": "device",
    "host": "l1",
    "disk": "l2",
    "p2p": "l2",
    "external_unspecified": "l2",
}


class TierCounterReader:
    """Reads all workers concurrently. `workers` maps names to URLs."""

    def __init__(self, workers: Mapping[str, str]) -> None:
        self._targets = {name: HttpTarget(url) for name, url in workers.items()}
        self._last: dict[str, dict[str, float]] = {}
        self.unseen: dict[str, str] = {}
        self.totals: dict[str, float] = {}

    async def look(self) -> dict[str, float]:
        """Return tokens by tier since the previous reading; empty at the first."""
        found = await asyncio.gather(*(self._one(name) for name in self._targets))
        grown: dict[str, float] = {}
        for name, now in zip(self._targets, found, strict=True):
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
    found = dict.fromkeys(("device", "l1", "l2"), 0.0)
    for source, tier in TIERS.items():
        found[tier] += total(samples, CACHED, source=source) or 0.0
    found[COMPUTED] = max(0.0, prompt - sum(found.values()))
    return found
