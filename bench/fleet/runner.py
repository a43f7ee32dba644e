"""Runs a workload through a chooser and a fleet in virtual time, and sums up what came of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Protocol

from bench.fleet.hardware import Hardware
from bench.fleet.worker import FleetWorker, Job
from bench.fleet.workloads import Ask

WARM_UP = 0.15  # of the requests: they fill the caches and are not counted


class Chooser(Protocol):
    """Picks a worker for a job, and is told what a router would see of it."""

    name: str

    def look_at(self, workers: list[FleetWorker], /) -> None:
        """Before the first job: only an oracle looks."""

    def choose(self, job: Job, now: float, /) -> int: ...
    def first(self, job: Job) -> None: ...
    def done(self, job: Job) -> None: ...


@dataclass(frozen=True)
class Result:
    name: str
    ttft_s: tuple[float, float, float, float]  # mean, p50, p90, p99
    hit_rate: float  # tokens found in caches of all prompt tokens
    skew: float  # busiest worker's prompt time over the mean
    utilisation: float  # share of time in which a worker had a prompt to compute


def share(values: list[float], part: float) -> float:
    """The value below which `part` of the values lie."""
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
    """All steps which end before `now`, in order of time."""
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
