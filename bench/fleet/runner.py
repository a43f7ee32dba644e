"""Run a workload through a chooser and a fleet in virtual time, and summarize."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Protocol

from bench.fleet.arrivals import Arrivals, Ask
from bench.fleet.hardware import Hardware
from bench.fleet.worker import NEVER, FleetWorker, Job

WARM_UP = 0.15  # share of requests that fill the caches, not counted


class Chooser(Protocol):
    """Picks a worker for each job; is notified of what a router would observe."""

    name: str

    def look_at(self, workers: list[FleetWorker], /) -> None:
        """Called before the first job; used by oracles only."""

    def choose(self, job: Job, now: float, /) -> int: ...
    def first(self, job: Job) -> None: ...
    def done(self, job: Job) -> None: ...


@dataclass(frozen=True)
class Result:
    name: str
    ttft_s: tuple[float, float, float, float]  # mean, p50, p90, p99
    hit_rate: float  # cached tokens / prompt tokens
    skew: float  # prompt time of the busiest worker / mean
    utilisation: float  # share of time with a prompt to compute


def share(values: list[float], part: float) -> float:
    """Return the quantile `part`."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def summary(
    name: str, ttfts: list[float], cached: int, prompts: int, busy: list[float], span: float
) -> Result:
    mean_busy = statistics.mean(busy)
    return Result(
        name,
        (statistics.mean(ttfts), share(ttfts, 0.5), share(ttfts, 0.9), share(ttfts, 0.99)),
        cached / prompts,
        max(busy) / mean_busy,
        mean_busy / span,
    )


def run(
    asks: list[Ask],
    hardware: Hardware,
    count: int,
    chooser: Chooser,
) -> Result:
    workers = [FleetWorker(hardware) for _ in range(count)]
    chooser.look_at(workers)
    warm = int(len(asks) * WARM_UP)
    arrivals = Arrivals(asks)
    jobs: list[Job] = []
    busy_before = [0.0] * count
    while True:
        _advance(workers, chooser, arrivals)
        if arrivals.next_at == NEVER:
            break
        at, number = arrivals.take()
        ask = asks[number]
        job = Job(number, ask.chain, ask.prompt_tokens, ask.answer_tokens, ask.session)
        workers[chooser.choose(job, at)].submit(job, at)
        jobs.append(job)
        if len(jobs) == warm:
            busy_before = [worker.busy_s for worker in workers]
        if len(jobs) == len(asks):
            busy = [worker.busy_s - was for worker, was in zip(workers, busy_before, strict=True)]
    counted = jobs[warm:]
    return summary(
        chooser.name,
        [job.first_at - job.arrived for job in counted],
        sum(job.cached for job in counted),
        sum(job.prompt_tokens for job in counted),
        busy,
        counted[-1].arrived - counted[0].arrived,
    )


def _advance(workers: list[FleetWorker], chooser: Chooser, arrivals: Arrivals) -> None:
    """End all steps before the next arrival, in order of time."""
    while True:
        worker = min(workers, key=_next_at)
        at = worker.next_at
        if at > arrivals.next_at or at == NEVER:
            return
        first, done = worker.advance(at)
        for job in first:
            chooser.first(job)
        for job in done:
            chooser.done(job)
            arrivals.ended(job.tag, at)


def _next_at(worker: FleetWorker) -> float:
    return worker.next_at
