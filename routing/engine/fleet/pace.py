"""How fast each worker computes prompts, learned from the TTFT of streamed responses.

A linear fit over all workers predicts the TTFT from the work at a worker when a request joined it
(prompt tokens to compute, its own among them). A worker's ratio is the sum of its TTFTs over the
sum of their predictions; its pace is that relative to the fastest quarter of the workers: 1 for
equal workers, 2 where the same work takes twice the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from routing.engine.fleet.load import LoadedTarget, set_pace

MIN_SAMPLES: Final = 32  # of a worker, before it counts
UPDATE_EVERY: Final = 32  # samples of all workers
FIT_DECAY: Final = 1 - 1 / 2048  # by sample of all workers
WORKER_DECAY: Final = 1 - 1 / 256  # by sample of the worker
OUTLIER: Final = 10.0  # most that one TTFT counts, in predictions
# Equal workers differ up to 1.45 by what they are sent (bench.fleet); less is no difference.
TOLERANCE: Final = 1.5
MAX_PACE: Final = 8.0
# A worker without samples since the last update drifts back, or it would never be tried again.
RECOVERY: Final = 0.02


class _WorkerSums:
    __slots__ = ("count", "measured", "predicted", "updated")

    def __init__(self) -> None:
        self.count = 0
        self.updated = 0  # count at the last update
        self.measured = 0.0
        self.predicted = 0.0


class PaceMeter:
    """Fit and ratios of one router."""

    def __init__(self) -> None:
        self._samples = 0
        self._weight = 0.0
        self._work = self._seconds = self._work_work = self._work_seconds = 0.0
        self._sums: dict[str, _WorkerSums] = {}

    def learn(self, worker_id: str, work: int, ttft_s: float) -> None:
        """Record a response; `work`: tokens to compute at the worker when the request joined."""
        predicted = self._predict(work)
        if predicted > 0:
            ttft_s = min(ttft_s, OUTLIER * predicted)
            sums = self._sums.get(worker_id)
            if sums is None:
                sums = self._sums[worker_id] = _WorkerSums()
            sums.count += 1
            sums.measured = sums.measured * WORKER_DECAY + ttft_s
            sums.predicted = sums.predicted * WORKER_DECAY + predicted
        self._samples += 1
        self._weight = self._weight * FIT_DECAY + 1
        self._work = self._work * FIT_DECAY + work
        self._seconds = self._seconds * FIT_DECAY + ttft_s
        self._work_work = self._work_work * FIT_DECAY + work * work
        self._work_seconds = self._work_seconds * FIT_DECAY + work * ttft_s

    def _predict(self, work: int) -> float:
        """Return the fitted TTFT; 0.0 while there are too few samples or the fit has no slope."""
        spread = self._weight * self._work_work - self._work * self._work
        if self._samples < MIN_SAMPLES or spread <= 0:
            return 0.0
        slope = (self._weight * self._work_seconds - self._work * self._seconds) / spread
        start = (self._seconds - slope * self._work) / self._weight
        return max(start, 0.0) + slope * work if slope > 0 else 0.0

    @property
    def due(self) -> bool:
        return self._samples % UPDATE_EVERY == 0

    def apply(self, workers: Iterable[LoadedTarget]) -> None:
        """Set the pace of the workers."""
        judged: list[tuple[LoadedTarget, _WorkerSums]] = []
        for worker in workers:
            sums = self._sums.get(worker.id)
            if sums is not None and sums.count >= MIN_SAMPLES:
                judged.append((worker, sums))
        if not judged:
            return
        ratios = sorted([sums.measured / sums.predicted for _, sums in judged])
        fastest = ratios[(len(ratios) - 1) // 4]
        for worker, sums in judged:
            if sums.count == sums.updated:
                sums.measured += RECOVERY * (fastest * sums.predicted - sums.measured)
            sums.updated = sums.count
            pace = sums.measured / (fastest * sums.predicted) if fastest > 0 else 1.0
            set_pace(worker, min(pace, MAX_PACE) if pace > TOLERANCE else 1.0)

    def forget(self, worker: LoadedTarget) -> None:
        """Drop what is known of a worker that was removed or restarted."""
        self._sums.pop(worker.id, None)
        set_pace(worker, 1.0)
