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


@doctor_check("RouterSilent", "The router answers", always_runs, kv=False)
def check_router_silent(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if facts.router.error:
        yield DoctorFinding(
            Severity.ERROR,
            "The router could not be asked, so most of this examination was not made.",
            "See on the endpoint's page whether the router runs, and read its log. If it does, "
            "its admin port must be reachable from here.",
            (facts.router.error,),
        )


@doctor_check(
    "RouterKeepsOldFile", "The router works with its newest configuration", require_router, kv=False
)
def check_old_file(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if facts.router.refused:
        yield DoctorFinding(
            Severity.ERROR,
            "The router refused its newest configuration and works with an older one.",
            "Correct what it names; it takes the file over within a second.",
            (facts.router.refused,),
        )


@doctor_check(
    "RouterNeedsRestart", "No setting waits for a restart of the router", require_router, kv=False
)
def check_needs_restart(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if facts.router.needs_restart:
        yield DoctorFinding(
            Severity.WARNING,
            "Settings were changed which the router takes over at its next start only.",
            "Restart the router when it suits; requests of streams end first.",
            facts.router.needs_restart,
        )


@doctor_check("NoWorkerRegistered", "The router has workers", require_router, kv=False)
def check_no_worker(facts: FleetFacts) -> Iterator[DoctorFinding]:
    if not facts.router.workers:
        yield DoctorFinding(
            Severity.ERROR,
            "No worker is registered with the router.",
            "Scale the endpoint up, or wait until its workers have started. With --worker-dns or "
            "--worker-endpointslices, see whether the name resolves and its pods are ready.",
        )


@doctor_check(
    "WorkerNotRegistered", "The router knows every worker that runs", require_router, kv=False
)
def check_not_registered(facts: FleetFacts) -> Iterator[DoctorFinding]:
    known = {worker.id for worker in facts.router.workers}
    missing = sorted((facts.wanted or frozenset()) - known)
    if missing and known:
        yield DoctorFinding(
            Severity.ERROR,
            "Workers run which the router does not know: they get no request.",
            "Wait for a few seconds; if it lasts, read the router's log for the configuration it "
            "refuses.",
            tuple(f"{name}: not among the router's {len(known)} workers" for name in missing),
            tuple(missing),
        )


@doctor_check("WorkerDown", "The router reaches its workers", require_router, kv=False)
def check_worker_down(facts: FleetFacts) -> Iterator[DoctorFinding]:
    down = [worker for worker in facts.router.workers if worker.state == "down"]
    if down:
        yield DoctorFinding(
            Severity.ERROR,
            "The router cannot use workers: their health checks fail.",
            "Read the worker's log. It must answer GET /health at the address the router has.",
            tuple(f"{w.id} at {w.url}: {w.last_error or 'no answer yet'}" for w in down),
            tuple(worker.id for worker in down),
        )


@doctor_check("WorkerNotReached", "Every worker answers the doctor", always_runs, kv=False)
def check_not_reached(facts: FleetFacts) -> Iterator[DoctorFinding]:
    up = {worker.id for worker in facts.router.workers if worker.state != "down"}
    silent = [w for w in facts.workers if not w.answers and (w.name in up or not up)]
    if silent:
        yield DoctorFinding(
            Severity.INFO,
            "Workers did not answer here, so what only they can tell was not examined.",
            "Run the doctor where the workers can be reached (`emberline endpoint doctor`), or "
            "see what keeps this machine from them. Requests are not affected if the router "
            "reaches them.",
            tuple(f"{w.name} at {w.url}: {w.version.error}" for w in silent),
            tuple(worker.name for worker in silent),
        )


@doctor_check(
    "WorkerMetricsMissing",
    "Every worker shows vLLM's metrics on its port",
    require_workers,
    kv=False,
)
def worker_metrics(facts: FleetFacts) -> Iterator[DoctorFinding]:
    bad = {
        worker.name: worker.cache.error or "/metrics shows nothing of vLLM"
        for worker in facts.workers
        if worker.answers and not (worker.cache.found and worker.cache.found.engine)
    }
    return worker_finding(
        Severity.WARNING,
        "Workers show no metrics: dashboards and alerts are blind to them, and the router "
        "cannot see that one was restarted.",
        "Start vLLM without --disable-log-stats, and let nothing but vLLM answer /metrics on "
        "the worker's port (no sidecar, no other path).",
        bad,
    )


@doctor_check(
    "RouterMetricsMissing",
    "The router shows the metrics which alerts watch",
    require_router,
    kv=False,
)
def router_metrics(facts: FleetFacts) -> Iterator[DoctorFinding]:
    metrics = facts.router.metrics
    missing = METRICS - (metrics.found or frozenset())
    if missing:
        yield DoctorFinding(
            Severity.WARNING,
            "The router's /metrics lacks what alerts on routing are made of.",
            "Run a router and a console of one version. Let nothing but the router answer on its "
            "admin port.",
            (metrics.error,) if metrics.error else tuple(f"{name} is missing" for name in missing),
        )
