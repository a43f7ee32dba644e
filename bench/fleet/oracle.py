"""The oracle: knows every worker's true cache and queue, picks the least predicted TTFT.

Greedy: it does not know what will be asked next, nor whom its pick delays, so another policy may
do better than it; none could do better for the one request at hand. Must not be shown to routers.
"""

from __future__ import annotations

from bench.fleet.hardware import BLOCK_TOKENS
from bench.fleet.worker import FleetWorker, Job


def _walk(worker: FleetWorker, chain: list[int], coming: set[int]) -> int:
    """Leading blocks that will be there when the prompts ahead are computed."""
    matched = worker.cache.match(chain)
    while matched < len(chain) and (chain[matched] in coming or worker.cache.holds(chain[matched])):
        matched += 1
    return matched


def predicted_ttft(worker: FleetWorker, job: Job, now: float) -> float:
    hardware = worker.hardware
    coming: set[int] = set()
    tokens = 0
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
    answers = worker.answering
    steps = -(-tokens // (hardware.step_tokens - answers))
    return (
        worker.until_step(now)
        + tokens * hardware.prefill_s
        + positions * hardware.context_s
        + steps * (hardware.step_s + answers * hardware.decode_s)
        + worker.until_room(job)
    )


class Oracle:
    name = "oracle"

    def __init__(self, workers: list[FleetWorker]) -> None:
        self._workers = workers
        self._picked = [0] * len(workers)
        self._picks = 0

    def choose(self, job: Job, now: float, /) -> int:
        workers = self._workers
        best = min(
            range(len(workers)),
            key=lambda index: (predicted_ttft(workers[index], job, now), self._picked[index]),
        )
        self._picks += 1
        self._picked[best] = self._picks
        return best

    def first(self, job: Job) -> None:
        pass

    def done(self, job: Job) -> None:
        pass
