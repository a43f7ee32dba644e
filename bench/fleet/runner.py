"""Run a workload through a chooser and a fleet in virtual time, and summarize."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Protocol

from bench.fleet.hardware import Hardware
from bench.fleet.worker import FleetWorker, Job
from bench.fleet.workloads import Ask

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
    jobs: list[Job] = []
    for ask in asks:
        job = Job(len(jobs), ask.chain, ask.prompt_tokens, ask.answer_tokens, ask.session)
        _advance(workers, chooser, ask.at)
        index = chooser.choose(job, ask.at)
        workers[index].submit(job, ask.at)
        jobs.append(job)
        if len(jobs) == warm:
            busy_before = [worker.busy_s for worker in workers]
    span = asks[-1].at - asks[warm].at
    busy = [worker.busy_s - was for worker, was in zip(workers, busy_before, strict=True)]
    _advance(workers, chooser, float("inf"))
    counted = jobs[warm:]
    return summary(
        chooser.name,
        [job.first_at - job.arrived for job in counted],
        sum(job.cached for job in counted),
        sum(job.prompt_tokens for job in counted),
        busy,
        span,
    )


def _advance(workers: list[FleetWorker], chooser: Chooser, now: float) -> None:
    """End all steps before `now`, in order of time."""
    while True:
        index = min(range(len(workers)), key=lambda i: workers[i].next_at)
        worker = workers[index]
        at = worker.next_at
        if at > now or at == float("inf"):
            return
        first, done = worker.advance(at)
        for job in first:
            chooser.first(job)
        for job in done:
            chooser.done(job)
