"""Start, abort and remove benchmarks; at most one live run per endpoint."""

from __future__ import annotations

import gzip
import hashlib
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.audit.record import record
from console.core.errors import Problem, Refused
from console.provisioners.base import ProvisionError
from dashboards.actions import get_serving_endpoint
from dashboards.benchmarks import load_plan, tasks
from dashboards.benchmarks.generator import traces
from dashboards.benchmarks.generator.job import TRACE, Job, TraceRow, parse_job
from dashboards.benchmarks.generator.keeper import get_hostname, make_keeper
from dashboards.benchmarks.models import Benchmark, BenchmarkData
from dashboards.benchmarks.selectors import count_live, get_live_run
from endpoints.models import Endpoint
from endpoints.refusals import ConflictError
from endpoints.runs import RunState

log = logging.getLogger(__name__)

MAX_CONCURRENT = 4
KEPT = 200
TITLE = 80
FRESH, SHARED = "fresh", "shared"
CACHES = {FRESH: "Cold: new prompts", SHARED: "Warm: same prompts as earlier runs with this seed"}


@dataclass(frozen=True, slots=True)
class BenchmarkRequest:
    """Parameters of a start. `trace`: text of an uploaded file, "" for the built-in sample.
    `second`: endpoint that gets the same load afterwards.
    """

    given: Mapping[str, Any]
    title: str = ""
    caches: str = FRESH
    second: str = ""
    trace: str = ""

    def job(self) -> Job:
        rows: tuple[TraceRow, ...] = ()
        if self.given.get("workload") == TRACE:
            rows = traces.parse(self.trace) if self.trace else traces.sample()
        job = parse_job(self.given, rows)
        if len(self.title) > TITLE:
            remedy = f"Enter at most {TITLE} characters."
            raise Refused(
                Problem("title", self.title, "The title is too long.", remedy, "too_long")
            )
        if self.caches not in CACHES:
            remedy = f"Choose one of {', '.join(CACHES)}."
            text = "Unknown value."
            raise Refused(Problem("caches", self.caches, text, remedy, "unknown_choice"))
        return replace(job, nonce=f"seed-{job.seed}") if self.caches == SHARED else job


def start(actor: Any, name: str, request: BenchmarkRequest) -> list[Benchmark]:
    """Queue a run, and a run of the second endpoint after it. Raise ConflictError while one is live
    or an endpoint cannot serve.
    """
    names = [name, request.second] if request.second else [name]
    job = request.job()
    loadables = [_loadable(actor, name) for name in names]
    if request.second == name:
        remedy = "Choose another endpoint, or start two runs one after the other."
        text = "The second endpoint equals the first."
        raise Refused(Problem("second", name, text, remedy, "same_endpoint"))
    if count_live() + len(loadables) > MAX_CONCURRENT:
        raise ConflictError(
            "too_many_benchmarks",
            f"{count_live()} benchmarks are queued or running; the limit is {MAX_CONCURRENT}.",
            "Wait for one to end, or abort one.",
        )
    made: list[Benchmark] = []
    with transaction.atomic():
        for endpoint in loadables:
            after = made[-1] if made else None
            made.append(_create_run(actor, endpoint, request, job, after))
        tasks.sweep.nudge()
    return made


def _loadable(actor: Any, name: str) -> Endpoint:
    endpoint = get_serving_endpoint(actor, name)
    if get_live_run(endpoint) is not None:
        raise _make_running_conflict(name)
    return endpoint


def _create_run(
    actor: Any, endpoint: Endpoint, request: BenchmarkRequest, job: Job, after: Benchmark | None
) -> Benchmark:
    if request.caches == FRESH:
        job = replace(job, nonce=secrets.token_hex(6))
    trace = traces.as_lines(job.rows).encode() if job.rows else b""
    digest = hashlib.sha256(trace).hexdigest()[:16] if trace else ""
    try:
        with transaction.atomic():
            run = Benchmark.objects.create(
                endpoint=endpoint,
                title=request.title.strip(),
                job=job.as_json(),
                endpoint_facts=load_plan.read_endpoint_facts(endpoint),
                simulated=endpoint.parsed.simulated,
                trace_digest=digest,
                stage=f"Waiting for {after.endpoint.name}" if after else "Queued",
                after=after,
                started_by=stored_actor(actor),
            )
            BenchmarkData.objects.create(run=run, trace=gzip.compress(trace) if trace else b"")
            details = {"run": str(run.pk), **load_plan.summarize_job(job)}
            record(actor, "benchmark.start", f"endpoint/{endpoint.name}", details)
    except IntegrityError:
        raise _make_running_conflict(endpoint.name) from None
    Benchmark.delete_old(endpoint.benchmarks.filter(left=False), KEPT)
    return run


def abort(actor: Any, run: Benchmark) -> None:
    """End the run at once. A process on another machine is stopped by that machine's sweep."""
    require(actor, "operator", of=run.endpoint)
    with transaction.atomic():
        if not Benchmark.request_cancel(run.pk):
            return
        target = f"endpoint/{run.endpoint.name}"
        record(actor, "benchmark.abort", target, {"run": str(run.pk)})
        tasks.sweep.nudge()
    if run.state != RunState.RUNNING or run.host != get_hostname():
        return
    try:
        make_keeper(settings.EMBERLINE.provisioner, settings.EMBERLINE.var).stop(str(run.pk))
    except ProvisionError as error:
        log.warning("Cannot stop benchmark %s, the sweep retries: %s", run.pk, error.message)


def delete(actor: Any, run: Benchmark) -> None:
    require(actor, "operator", of=run.endpoint)
    if run.live or run.left:
        raise ConflictError(
            "benchmark_running",
            "The benchmark is running, or its process is still ending.",
            "Abort it and wait until it ends.",
        )
    with transaction.atomic():
        target = f"endpoint/{run.endpoint.name}"
        record(actor, "benchmark.delete", target, {"run": str(run.pk)})
        run.delete()


def _make_running_conflict(name: str) -> ConflictError:
    return ConflictError(
        "benchmark_running",
        f"A benchmark of {name} is already queued or running.",
        "Wait until it ends, or abort it.",
    )
