"""Oracle: picks the least predicted TTFT from every worker's true cache and queue.

Greedy: it is optimal for the current request, but ignores future requests and those it delays, so
that another policy may be better overall.
"""

from __future__ import annotations

from dashboards.insight.whatif.simulation.hardware import BLOCK_TOKENS
from dashboards.insight.whatif.simulation.worker import FleetWorker, Job


def _walk(worker: FleetWorker, chain: list[int], coming: set[int]) -> int:
    """Return the leading blocks cached once the queued prompts are computed."""
    matched = worker.cache.match(chain)
    while matched < len(chain) and (chain[matched] in coming or chain[matched] in worker.cache):
        matched += 1
    return matched


def prefill_work(worker: FleetWorker, job: Job) -> tuple[int, float, int, int]:
    """Return prompt tokens to compute until the job's first token and the sum of their positions;
    of the job alone, the tokens to compute and those cached.
    """
    coming: set[int] = set()
    tokens = left = cached = 0
    positions = 0.0
    for ahead in worker.prefilling:
        left = ahead.prompt_tokens - ahead.computed
        tokens += left
        positions += left * (ahead.computed + left / 2)
        coming.update(ahead.chain)
    for prompt in (*worker.waiting, job):
        cached = _walk(worker, prompt.chain, coming) * BLOCK_TOKENS
        cached = min(cached, (prompt.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS)
        left = prompt.prompt_tokens - cached
        tokens += left
        positions += left * (cached + left / 2)
        coming.update(prompt.chain)
    return tokens, positions, left, cached


def predicted_ttft(worker: FleetWorker, job: Job, now: float) -> tuple[float, float]:
    """Return the predicted TTFT (s) and its own compute time."""
    hardware = worker.hardware
    tokens, positions, left, cached = prefill_work(worker, job)
    answers = worker.answering
    own = left * hardware.prefill_s + left * (cached + left / 2) * hardware.context_s
    steps = -(-tokens // (hardware.step_tokens - answers))
    whole = (
        worker.until_step(now)
        + tokens * hardware.prefill_s
        + positions * hardware.context_s
        + steps * (hardware.step_s + answers * hardware.decode_s)
        + worker.until_room(job)
    )
    return whole, own


class Oracle:
    """`recompute`: weight of the job's own compute time; 1: as it affects TTFT."""

    def __init__(self, name: str = "oracle", recompute: float = 1.0) -> None:
        self.name = name
        self._more = recompute - 1
        self._workers: list[FleetWorker] = []
        self._picked: list[int] = []
        self._picks = 0

    def observe(self, workers: list[FleetWorker], /) -> None:
        self._workers = workers
        self._picked = [0] * len(workers)

    def choose(self, job: Job, now: float, /) -> int:
        best = min(range(len(self._workers)), key=lambda index: self._rank(index, job, now))
        self._picks += 1
        self._picked[best] = self._picks
        return best

    def _rank(self, index: int, job: Job, now: float) -> tuple[float, int]:
        whole, own = predicted_ttft(self._workers[index], job, now)
        return whole + self._more * own, self._picked[index]

    def first(self, job: Job) -> None:
        pass

    def done(self, job: Job) -> None:
        pass


class LMetric(Oracle):
    """New prefill tokens times batch size (LMetric, 2026), with the true caches and queues."""

    def _rank(self, index: int, job: Job, _now: float) -> tuple[float, int]:
        worker = self._workers[index]
        batch = worker.answering + len(worker.prefilling) + len(worker.waiting) + 1
        return prefill_work(worker, job)[0] * batch, self._picked[index]
