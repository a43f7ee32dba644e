"""Preview of the load a job puts on its endpoints. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dashboards.benchmarks.generator.job import RATE, TRACE, WORKLOADS, Job
from dashboards.benchmarks.generator.workloads import Plan, plan_load
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.router import selectors as routing

ENDS = {
    "duration_s": "the duration is reached",
    "max_requests": "all requests are sent",
    "max_tokens": "the token limit is reached",
    "trace": "the trace ends",
}


@dataclass(frozen=True, slots=True)
class LoadedEndpoint:
    """An endpoint under load. `in_flight`: current requests of other clients at its routers; None
    if unknown.
    """

    name: str
    phase: str
    workers: tuple[str, ...]
    strategy: str
    where: str
    simulated: bool
    in_flight: int | None


def describe_endpoint(endpoint: Endpoint, *, asking: bool = True) -> LoadedEndpoint:
    spec = endpoint.parsed
    ready = [w.name for w in selectors.worker_facts(endpoint) if w.ready]
    where = f"cluster {spec.placement.cluster}" if spec.on_cluster else "this machine"
    return LoadedEndpoint(
        name=endpoint.name,
        phase=str(endpoint.shown_phase),
        workers=tuple(ready),
        strategy=spec.routing.effective_strategy,
        where=where,
        simulated=spec.simulated,
        in_flight=_query_in_flight(endpoint) if asking else None,
    )


def read_endpoint_facts(endpoint: Endpoint) -> dict[str, Any]:
    spec, endpoint_state = endpoint.parsed, describe_endpoint(endpoint, asking=False)
    return {
        "generation": endpoint.generation,
        "model": spec.model,
        "strategy": endpoint_state.strategy,
        "workers": len(endpoint_state.workers),
        "l1": spec.cache.l1.enabled,
        "l2": spec.cache.l2.enabled,
        "where": endpoint_state.where,
    }


@dataclass(frozen=True, slots=True)
class LoadPreview:
    job: Job
    plan: Plan
    endpoints: tuple[LoadedEndpoint, ...]

    @property
    def ends_by(self) -> str:
        return ENDS[self.plan.ends_by]

    @property
    def bound(self) -> bool:
        """With users the load depends on responses: the numbers are upper bounds."""
        return self.job.mode != RATE

    @property
    def requests_s(self) -> float:
        return self.plan.requests / max(self.plan.seconds, 1e-3)

    @property
    def workers(self) -> int:
        return sum(len(endpoint.workers) for endpoint in self.endpoints)


def make_preview(job: Job, found: list[Endpoint]) -> LoadPreview:
    return LoadPreview(
        job, plan_load(job), tuple(describe_endpoint(endpoint) for endpoint in found)
    )


def summarize_job(job: Job) -> dict[str, Any]:
    speed: dict[str, Any] = {"concurrency": job.concurrency}
    if job.mode == RATE:
        speed = {"speed": job.speed} if job.workload == TRACE else {"rate": job.rate}
    return {
        "workload": WORKLOADS[job.workload],
        **speed,
        "duration_s": job.duration_s,
        "max_requests": job.max_requests,
    }


def _query_in_flight(endpoint: Endpoint) -> int | None:
    workers = routing.workers(endpoint)
    unknown = workers.error or workers.note
    return None if unknown else sum(worker.in_flight for worker in workers.found)
