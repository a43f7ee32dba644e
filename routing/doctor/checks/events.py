"""Checks that every worker publishes KV events and the router follows them. Pure.

The router's view takes precedence; the worker's is used where the router reports nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from routing.analysis.kv_index import NO_SOURCE, KvSource
from routing.doctor.facts import FleetFacts, Statement, WorkerFacts
from routing.doctor.findings import (
    DoctorFinding,
    Severity,
    doctor_check,
    groups,
    require_kvaware,
    require_one,
    worker_finding,
)

LAG_S = 5.0
STALE_S = 30.0
_BATCHES_A_LOSS = 1000  # at fewer losses per batch, they are old or rare

_CONFIG = (
    '\'{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}\''
)
_OWN_WORKERS_TEXT = "Emberline's console always sets this; such a worker was started differently."
# Router reasons for a missing source that another check reports in detail.
_ELSEWHERE = ("events_off", "discovery_missing", "endpoint_dials_out", "unreachable")


def _sources(facts: FleetFacts) -> tuple[KvSource, ...]:
    return facts.router.kv.sources if facts.router.kv is not None else ()


def _published(worker: WorkerFacts) -> bool:
    return any(publisher.enabled for publisher in worker.publishers.found or ())


def _followed(facts: FleetFacts, worker: str) -> bool:
    return any(source.following for source in _sources(facts) if source.worker == worker)


def _require_publisher(worker: WorkerFacts) -> Statement[object]:
    return Statement(worker.publishers.found or worker.publishers.status or None)


def _require_event_report(facts: FleetFacts) -> str:
    return (
        ""
        if not require_kvaware(facts)
        else require_one(_require_publisher, "its event configuration")(facts)
    )


@doctor_check("KvEventsOff", "All workers publish KV events", _require_event_report)
def events_off(facts: FleetFacts) -> Iterator[DoctorFinding]:
    off: dict[str, str] = {}
    for worker in facts.workers:
        if worker.publishers.found is not None and not _published(worker):
            off[worker.name] = f"/kv_event_sources lists {len(worker.publishers.found)} sources"
    for source in _sources(facts):
        if source.reason == "events_off":
            off.setdefault(source.worker, f"router: {source.message}")
    off = {name: why for name, why in off.items() if not _followed(facts, name)}
    return worker_finding(
        Severity.ERROR,
        "No worker publishes KV events: kvaware is not effective, and every request is routed by "
        "prefix."
        if len(off) >= len(facts.workers)
        else "Workers publish no KV events: requests are routed to them by load only.",
        f"Start them with --kv-events-config {_CONFIG}. {_OWN_WORKERS_TEXT}",
        off,
    )


@doctor_check(
    "KvDiscoveryMissing", "All workers report their KV event endpoint", _require_event_report
)
def discovery_missing(facts: FleetFacts) -> Iterator[DoctorFinding]:
    missing = {
        worker.name: worker.publishers.error
        for worker in facts.workers
        if worker.publishers.status in (404, 405) and not _followed(facts, worker.name)
    }
    for source in _sources(facts):
        if source.reason == "discovery_missing":
            missing.setdefault(source.worker, source.message)
    return worker_finding(
        Severity.ERROR,
        "Workers do not report their KV event endpoint (vLLM before 0.32, or a proxy that blocks "
        "the path), and it is not configured on the router.",
        "Set the sockets: --kv-events URL=tcp://HOST:5557 and --kv-replay URL=tcp://HOST:5558 "
        "(or kv_events and kv_replay of the worker in the router's file).",
        missing,
    )


@doctor_check("KvReplayOff", "All workers replay missed KV events", _require_event_report)
def replay_off(facts: FleetFacts) -> Iterator[DoctorFinding]:
    off: dict[str, str] = {}
    for worker in facts.workers:
        for publisher in worker.publishers.found or ():
            if publisher.enabled and publisher.buffer_steps == 0 and publisher.replay:
                off[worker.name] = "buffer_steps is 0: no events are buffered for a replay"
            elif publisher.enabled and not publisher.replay:
                off[worker.name] = "replay_endpoint is not set"
    for source in _sources(facts):
        if source.endpoint and not source.replay:
            off.setdefault(source.worker, "the router has no replay endpoint for it")
        elif source.replay and off.get(source.worker, "").startswith("replay_endpoint"):
            del off[source.worker]  # configured on the router
    return worker_finding(
        Severity.WARNING,
        "Workers do not replay KV events: after each lost event and each router restart, their "
        "index is dropped and rebuilt.",
        f"Add replay_endpoint: --kv-events-config {_CONFIG}. {_OWN_WORKERS_TEXT}",
        off,
    )


@doctor_check("KvEventsDialOut", "All KV event endpoints accept connections", _require_event_report)
def check_dials_out(facts: FleetFacts) -> Iterator[DoctorFinding]:
    publishers: dict[str, str] = {}
    for worker in facts.workers:
        if _followed(facts, worker.name):
            continue
        for publisher in worker.publishers.found or ():
            if (
                publisher.enabled
                and publisher.endpoint.startswith("tcp://")
                and not _binds(publisher.endpoint)
            ):
                publishers[worker.name] = f"endpoint {publisher.endpoint}"
    for source in _sources(facts):
        if source.reason == "endpoint_dials_out":
            publishers.setdefault(source.worker, source.message)
    return worker_finding(
        Severity.ERROR,
        "The endpoint of these workers is a fixed address, so vLLM connects to it instead of "
        "listening, and no event arrives.",
        "Set their endpoint to tcp://*:PORT, or let the router bind: "
        "--kv-events URL=bind:tcp://*:PORT.",
        publishers,
    )


def _binds(endpoint: str) -> bool:
    return "*" in endpoint or "::" in endpoint


@doctor_check("KvEventsNotFollowed", "The router receives KV events of all workers")
def not_followed(facts: FleetFacts) -> Iterator[DoctorFinding]:
    workers = {
        finding
        for check in (events_off, discovery_missing, check_dials_out)
        for problem in check.run(facts)
        for finding in problem.workers
    }
    bad: dict[str, str] = {}
    remedies: list[str] = []
    down = {worker.id for worker in facts.router.workers if worker.state == "down"}
    for source in _sources(facts):
        if source.following or source.state == "catching_up":
            continue
        if source.worker in workers | down or source.reason in _ELSEWHERE:
            continue
        if source.state == NO_SOURCE:
            bad[source.worker] = source.message or source.reason
            remedies.append(source.message)
        else:
            bad[source.worker] = f"{source.state} at {source.endpoint}"
    followed = {source.worker for source in _sources(facts)}
    for worker in facts.workers:
        routed = any(router_worker.id == worker.name for router_worker in facts.router.workers)
        if _published(worker) and worker.name not in followed and routed:
            bad[worker.name] = "publishes events, but the router is not connected"
    return worker_finding(
        Severity.ERROR,
        "The router does not receive the KV events of workers.",
        " ".join(dict.fromkeys(text for text in remedies if text))
        or "Check that the router can reach the endpoint (NetworkPolicy, container port) and "
        "that it belongs to the worker.",
        bad,
    )


@doctor_check("KvEventSourceShared", "KV event endpoints are unique")
def source_shared(facts: FleetFacts) -> Iterator[DoctorFinding]:
    named = ((s.worker, s.endpoint) for s in _sources(facts) if s.endpoint)
    for endpoint, workers in groups(named):
        if len(set(workers)) > 1:
            yield DoctorFinding(
                Severity.ERROR,
                "Several workers share one KV event endpoint, so the cache contents of one are "
                "attributed to all.",
                "Set a separate port (or socket) per worker in --kv-events-config.",
                (f"{endpoint}: {', '.join(sorted(set(workers)))}",),
                tuple(sorted(set(workers))),
            )


@doctor_check("KvEventsLate", "KV event lag is low")
def check_event_lag(facts: FleetFacts) -> Iterator[DoctorFinding]:
    late = {s.worker: s.lag_s for s in _sources(facts) if s.lag_s > LAG_S}
    stale = any(seconds > STALE_S for seconds in late.values())
    return worker_finding(
        Severity.ERROR if stale else Severity.WARNING,
        "KV events arrive late: routing uses outdated cache contents.",
        "Check the clocks of both machines first (the lag is measured between them). Otherwise the "
        "router lacks CPU: see emberline_router_overhead_seconds, or add router replicas.",
        {name: f"{seconds:.1f} s" for name, seconds in late.items()},
    )


@doctor_check("KvEventsLost", "No KV events are lost")
def check_lost_events(facts: FleetFacts) -> Iterator[DoctorFinding]:
    losing = {s.worker: s for s in _sources(facts) if s.lost}
    often = any(s.lost * _BATCHES_A_LOSS > s.batches for s in losing.values())
    return worker_finding(
        Severity.WARNING if often else Severity.INFO,
        "KV events were lost and could not be replayed since the router started, so the index of "
        "these workers was dropped and rebuilt.",
        "Set replay_endpoint, and raise buffer_steps (10,000 by default) and hwm in "
        "--kv-events-config if the network or the router pauses for long.",
        {name: _counts_text(source.counts) for name, source in losing.items()},
    )


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{key} {count}" for key, count in counts.items())


@doctor_check("KvEventsNotUnderstood", "All KV events are valid")
def check_malformed_events(facts: FleetFacts) -> Iterator[DoctorFinding]:
    bad = {s.worker: {**s.errors, **s.skipped} for s in _sources(facts) if s.errors or s.skipped}
    return worker_finding(
        Severity.WARNING,
        "Some published KV events are not valid: the index may be incomplete, or another program "
        "listens on that port.",
        "Compare the vLLM version with the one tested with this router, and check which program "
        "listens at the endpoint.",
        {name: _counts_text(what) for name, what in bad.items()},
    )
