"""Detection of an engine that is stuck behind an API server whose health check passes.

vLLM's /health reports a dead engine, not one that is stopped, deadlocked or waits for its device.
Progress is a byte of any answer, or a change of the engine's counters in /metrics, which an engine
updates with each step; a worker without these counters is not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

import orjson

from routing.engine.config import HealthConfig
from routing.engine.fleet.probe_request import ProbeError, send_probe
from routing.engine.fleet.workers import Worker

# Counters that vLLM's engine core reports with each step.
_STEP_METRICS: Final = (
    b"vllm:iteration_tokens_total_count",
    b"vllm:prompt_tokens_total",
    b"vllm:generation_tokens_total",
    b"vllm:kv_cache_usage_perc",
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
)
_OBSERVED_SHARE: Final = 1 / 3  # of the time limit, after which the counters are compared
_SAMPLE_TIMEOUT_S: Final = 5.0


def read_steps(text: bytes) -> bytes:
    """Return the lines of /metrics that change with each step of the engine; b"" without any."""
    return b"\n".join(line for line in text.split(b"\n") if line.startswith(_STEP_METRICS))


class ProgressWatch:
    """Last counters of each worker that has been silent for a while."""

    def __init__(
        self, stuck: Callable[[Worker, float], None], moved: Callable[[Worker], None]
    ) -> None:
        self._stuck = stuck
        self._moved = moved
        self._steps: dict[Worker, bytes] = {}

    async def check(self, worker: Worker, config: HealthConfig) -> None:
        """Compare the counters of a worker that has been silent; call it about every second."""
        limit_s = config.progress_timeout_s
        now = perf_counter()
        waits = bool(worker.own_in_flight) and now - worker.progress_at > limit_s * _OBSERVED_SHARE
        if not limit_s or not (waits or worker.stuck):
            self._steps.pop(worker, None)
            return
        steps = await self._sample(worker)
        before = self._steps.setdefault(worker, steps)
        has_moved = steps != before and bool(steps)
        if has_moved:
            self._steps[worker] = steps
        if worker.stuck:
            if has_moved or await self._computes(worker):
                self._moved(worker)
        elif has_moved or not steps:  # a silent API server is judged by the health check
            worker.progress_at = perf_counter()
        elif now - worker.progress_at >= limit_s:
            self._stuck(worker, now - worker.progress_at)

    async def _sample(self, worker: Worker) -> bytes:
        try:
            status, body = await send_probe(worker, "/metrics", _SAMPLE_TIMEOUT_S)
        except ProbeError:
            return b""
        return read_steps(body) if status == 200 else b""

    async def _computes(self, worker: Worker) -> bool:
        """Return True unless the engine leaves a request for one token unanswered."""
        model = next((model.get("id") for model in worker.models), None)
        body = orjson.dumps({"model": model, "prompt": "a", "max_tokens": 1})
        try:
            status, _ = await send_probe(worker, "/v1/completions", _SAMPLE_TIMEOUT_S, body)
        except ProbeError:
            return False
        return status < 500
