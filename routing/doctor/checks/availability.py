"""Checks that router and workers respond and use the intended configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from routing.doctor.facts import FleetFacts
from routing.doctor.findings import (
    DoctorFinding,
    Severity,
    always_runs,
    doctor_check,
    require_router,
    require_workers,
    worker_finding,
)

# Metrics required by alert rules and dashboards.
METRICS = frozenset(
    {
        "emberline_router_requests_total",
        "emberline_router_worker_up",
        "emberline_router_kv_fallbacks_total",
        "emberline_router_kv_recoveries_total",
    }
)


@doctor_check("RouterSilent", "The router responds", always_runs, kv=False)
def check_router_silent(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if facts.router.error:
        others = any(not router.error for router in facts.routers)
        yield DoctorFinding(
            Severity.ERROR,
            "The router could not be queried, so "
            + ("its part of the checks was skipped." if others else "most checks were skipped."),
            "Check on the endpoint page that the router is running, and read its log. If it runs, "
            "its admin port must be reachable from the console.",
            (facts.router.error,),
        )


@doctor_check(
    "RouterKeepsOldFile", "The router uses its latest configuration", require_router, kv=False
)
def check_old_file(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if facts.router.refused:
        yield DoctorFinding(
            Severity.ERROR,
            "The router rejected its latest configuration and uses an older one.",
            "Correct the reported field; the router reloads the file within a second.",
            (facts.router.refused,),
        )


@doctor_check(
    "RouterNeedsRestart", "No setting requires a router restart", require_router, kv=False
)
def check_needs_restart(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if facts.router.needs_restart:
        yield DoctorFinding(
            Severity.WARNING,
            "Changed settings take effect only after a router restart.",
            "Restart the router at a convenient time; running streams are completed first.",
            facts.router.needs_restart,
        )


@doctor_check("NoWorkerRegistered", "The router has workers", require_router, kv=False)
def check_no_worker(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if not facts.router.workers:
        yield DoctorFinding(
            Severity.ERROR,
            "No worker is registered with the router.",
            "Scale the endpoint up, or wait until its workers have started. With --worker-dns or "
            "--worker-endpointslices, check that the name resolves and the pods are ready.",
        )


@doctor_check("WorkerNotRegistered", "All running workers are registered", require_router, kv=False)
def check_not_registered(facts: FleetFacts) -> Iterator[DoctorFinding]:
    ids = {worker.id for worker in facts.router.workers}
    missing = sorted((facts.wanted or frozenset()) - ids)
    if missing and ids:
        yield DoctorFinding(
            Severity.ERROR,
            "Running workers are not registered with the router and get no requests.",
            "Wait a few seconds. If it persists, check the router's log for a rejected "
            "configuration.",
            tuple(f"{name}: not among the router's {len(ids)} workers" for name in missing),
            tuple(missing),
        )


@doctor_check("WorkerDown", "The router reaches its workers", require_router, kv=False)
def check_worker_down(facts: FleetFacts) -> Iterator[DoctorFinding]:
    down = [worker for worker in facts.router.workers if worker.state == "down"]
    if down:
        yield DoctorFinding(
            Severity.ERROR,
            "Health checks of workers fail.",
            "Read the worker's log. GET /health must succeed at the registered address.",
            tuple(f"{w.id} at {w.url}: {w.last_error or 'no response yet'}" for w in down),
            tuple(worker.id for worker in down),
        )


@doctor_check(
    "WorkerNotReached", "All workers are reachable from the console", always_runs, kv=False
)
def check_not_reached(facts: FleetFacts) -> Iterator[DoctorFinding]:
    up = {worker.id for worker in facts.router.workers if worker.state != "down"}
    silent = [w for w in facts.workers if not w.answers and (w.name in up or not up)]
    if silent:
        yield DoctorFinding(
            Severity.INFO,
            "Workers did not respond to the console, so their own facts were not checked.",
            "Run the doctor where the workers are reachable (`emberline endpoint doctor`), or "
            "fix the network path. Requests are not affected if the router reaches them.",
            tuple(f"{w.name} at {w.url}: {w.version.error}" for w in silent),
            tuple(worker.name for worker in silent),
        )


@doctor_check("WorkerMetricsMissing", "All workers expose vLLM metrics", require_workers, kv=False)
def worker_metrics(facts: FleetFacts) -> Iterator[DoctorFinding]:
    bad = {
        worker.name: worker.cache.error or "/metrics has no vLLM metrics"
        for worker in facts.workers
        if worker.answers and not (worker.cache.found and worker.cache.found.engine)
    }
    return worker_finding(
        Severity.WARNING,
        "Workers expose no metrics: dashboards and alerts do not cover them, and the router "
        "does not detect their restarts.",
        "Start vLLM without --disable-log-stats, and make sure that vLLM itself serves /metrics "
        "on the worker's port (no sidecar, no other path).",
        bad,
    )


@doctor_check(
    "RouterMetricsMissing",
    "The router exposes the metrics used by alerts",
    require_router,
    kv=False,
)
def router_metrics(facts: FleetFacts) -> Iterator[DoctorFinding]:
    metrics = facts.router.metrics
    missing = METRICS - (metrics.found or frozenset())
    if missing:
        yield DoctorFinding(
            Severity.WARNING,
            "The router's /metrics lacks metrics used by routing alerts.",
            "Use the same version of router and console, and make sure that the router itself "
            "serves its admin port.",
            (metrics.error,) if metrics.error else tuple(f"{name} is missing" for name in missing),
        )
