"""Run a workload through a chooser and a fleet in virtual time, and summarize."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from dashboards.insight.whatif.simulation.arrivals import Arrivals, PlannedRequest
from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.worker import NEVER, FleetWorker, Job, make_tier

WARM_UP = 0.15  # share of requests that fill the caches, not counted
STEP = 500  # arrivals between two progress reports


class Chooser(Protocol):
    """Picks a worker for each job; is notified of what a router would observe."""

    name: str

    def observe(self, workers: list[FleetWorker], /) -> None:
        """Called before the first job; used by oracles only."""

    def choose(self, job: Job, now: float, /) -> int: ...
    def first(self, job: Job) -> None: ...
    def done(self, job: Job) -> None: ...


@dataclass(frozen=True)
class FleetResult:
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
) -> FleetResult:
    mean_busy = statistics.mean(busy)
    return FleetResult(
        name,
        (statistics.mean(ttfts), share(ttfts, 0.5), share(ttfts, 0.9), share(ttfts, 0.99)),
        cached / prompts,
        max(busy) / mean_busy,
        mean_busy / span,
    )


Step = Callable[[int], None]  # called with the number of arrivals so far


@dataclass(frozen=True)
class SimulatedRun:
    """Requests in order of arrival, and the prompt time of each worker: at the end of the warm-up
    and when the last request arrived.
    """

    jobs: list[Job]
    warm: int
    busy_before: list[float]
    busy: list[float]
    evicted: tuple[int, int, int]  # blocks of device, L1, L2

    @property
    def counted(self) -> list[Job]:
        return self.jobs[self.warm :]


def simulate(
    requests: Sequence[PlannedRequest],
    hardware: Hardware,
    count: int,
    chooser: Chooser,
    warm_up: float = WARM_UP,
    step: Step | None = None,
    slowdown: Sequence[float] = (),
) -> SimulatedRun:
    """Replay requests on `count` workers; `step` may raise to cancel. `slowdown`: factor of the
    times of the first workers.
    """
    l2 = make_tier(hardware.l2, hardware)
    factors = [*slowdown, *[1.0] * (count - len(slowdown))]
    workers = [FleetWorker(hardware.slowed(factor), shared=l2) for factor in factors]
    chooser.observe(workers)
    warm = int(len(requests) * warm_up)
    arrivals = Arrivals(requests)
    jobs: list[Job] = []
    busy_before = busy = [0.0] * count
    while True:
        _advance(workers, chooser, arrivals)
        if arrivals.next_at == NEVER:
            break
        now_s, number = arrivals.take()
        planned = requests[number]
        job = Job(
            *(number, planned.chain, planned.prompt_tokens, planned.answer_tokens),
            *(planned.session, planned.reported, planned.strategy, planned.answer_chain),
        )
        workers[chooser.choose(job, now_s)].submit(job, now_s)
        jobs.append(job)
        if step is not None and not len(jobs) % STEP:
            step(len(jobs))
        if len(jobs) == warm:
            busy_before = [worker.busy_s for worker in workers]
        if len(jobs) == len(requests):
            busy = [worker.busy_s for worker in workers]
    evicted = (
        sum(worker.cache.evicted for worker in workers),
        sum(worker.l1.evicted for worker in workers if worker.l1 is not None),
        l2.evicted if l2 is not None else 0,
    )
    return SimulatedRun(jobs, warm, busy_before, busy, evicted)


def run(
    requests: Sequence[PlannedRequest],
    hardware: Hardware,
    count: int,
    chooser: Chooser,
    slowdown: Sequence[float] = (),
) -> FleetResult:
    done = simulate(requests, hardware, count, chooser, slowdown=slowdown)
    counted = done.counted
    return summary(
        chooser.name,
        [job.first_at - job.arrived for job in counted],
        sum(job.cached for job in counted),
        sum(job.prompt_tokens for job in counted),
        [busy - was for busy, was in zip(done.busy, done.busy_before, strict=True)],
        counted[-1].arrived - counted[0].arrived,
    )


def _advance(workers: list[FleetWorker], chooser: Chooser, arrivals: Arrivals) -> None:
    """End all steps before the next arrival, in order of time."""
    while True:
        worker = min(workers, key=_next_at)
        next_at = worker.next_at
        if next_at > arrivals.next_at or next_at == NEVER:
            return
        first, done = worker.advance(next_at)
        for job in first:
            chooser.first(job)
        for job in done:
            chooser.done(job)
            arrivals.ended(job.tag, next_at)


_next_at = attrgetter("next_at")
