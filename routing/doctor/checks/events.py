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
_OWN_WORKERS_TEXT = (
    "Emberline's console starts its workers so always: one that does not was started otherwise."
)
# Router reasons for a missing source that another check reports in detail.
_ELSEWHERE = ("events_off", "discovery_missing", "endpoint_dials_out", "unreachable")


def _sources(facts: FleetFacts) -> tuple[KvSource, ...]:
    return facts.router.kv.sources if facts.router.kv is not None else ()


def _published(worker: WorkerFacts) -> bool:
    return any(one.enabled for one in worker.publishers.found or ())


def _followed(facts: FleetFacts, worker: str) -> bool:
    return any(source.following for source in _sources(facts) if source.worker == worker)


def _require_publisher(worker: WorkerFacts) -> Statement[object]:
    return Statement(worker.publishers.found or worker.publishers.status or None)


def _require_event_report(facts: FleetFacts) -> str:
    return (
        ""
        if not require_kvaware(facts)
        else require_one(_require_publisher, "whether it publishes")(facts)
    )


@doctor_check("KvEventsOff", "Every worker publishes KV events", _require_event_report)
def events_off(facts: FleetFacts) -> Iterator[DoctorFinding]:
    off: dict[str, str] = {}
    for worker in facts.workers:
        if worker.publishers.found is not None and not _published(worker):
            off[worker.name] = f"/kv_event_sources answers {len(worker.publishers.found)} sources"
    for source in _sources(facts):
        if source.reason == "events_off":
            off.setdefault(source.worker, f"the router says: {source.message}")
    off = {name: why for name, why in off.items() if not _followed(facts, name)}
    return worker_finding(
        Severity.ERROR,
        "No worker publishes KV events: kvaware knows nothing, and every request goes by its "
        "prefix."
        if len(off) >= len(facts.workers)
        else "Workers publish no KV events: the router places them by their load alone.",
        f"Start them with --kv-events-config {_CONFIG}. {_OWN_WORKERS_TEXT}",
        off,
    )


@doctor_check("KvDiscoveryMissing", "Every worker tells where it publishes", _require_event_report)
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
        "Workers cannot be asked where they publish KV events (vLLM before 0.32, or a proxy "
        "that does not pass the path on), and nobody told the router.",
        "Name the sockets: --kv-events URL=tcp://HOST:5557 and --kv-replay URL=tcp://HOST:5558 "
        "(or kv_events and kv_replay of the worker in the router's file).",
        missing,
    )


@doctor_check("KvReplayOff", "Every worker repeats events that were missed", _require_event_report)
def replay_off(facts: FleetFacts) -> Iterator[DoctorFinding]:
    off: dict[str, str] = {}
    for worker in facts.workers:
        for one in worker.publishers.found or ():
            if one.enabled and one.buffer_steps == 0 and one.replay:
                off[worker.name] = "buffer_steps is 0: nothing is kept for a replay"
            elif one.enabled and not one.replay:
                off[worker.name] = "replay_endpoint is not set"
    for source in _sources(facts):
        if source.endpoint and not source.replay:
            off.setdefault(source.worker, "the router follows it without a replay")
        elif source.replay and off.get(source.worker, "").startswith("replay_endpoint"):
            del off[source.worker]  # configured on the router
    return worker_finding(
        Severity.WARNING,
        "Workers repeat no KV events: after each that is lost, and after each restart of the "
        "router, all that is known of their cache is dropped and learnt anew.",
        f"Add replay_endpoint: --kv-events-config {_CONFIG}. {_OWN_WORKERS_TEXT}",
        off,
    )


@doctor_check("KvEventsDialOut", "Every worker can be connected to", _require_event_report)
def check_dials_out(facts: FleetFacts) -> Iterator[DoctorFinding]:
    found: dict[str, str] = {}
    for worker in facts.workers:
        if _followed(facts, worker.name):
            continue
        for one in worker.publishers.found or ():
            if one.enabled and one.endpoint.startswith("tcp://") and not _binds(one.endpoint):
                found[worker.name] = f"endpoint {one.endpoint}"
    for source in _sources(facts):
        if source.reason == "endpoint_dials_out":
            found.setdefault(source.worker, source.message)
    return worker_finding(
        Severity.ERROR,
        "Workers name one address to publish at, so vLLM connects to it and binds nothing: "
        "nobody can connect to them, and no event arrives.",
        "Write tcp://*:PORT as their endpoint; or let the router bind: "
        "--kv-events URL=bind:tcp://*:PORT.",
        found,
    )


def _binds(endpoint: str) -> bool:
    return "*" in endpoint or "::" in endpoint


@doctor_check("KvEventsNotFollowed", "The router follows every worker")
def not_followed(facts: FleetFacts) -> Iterator[DoctorFinding]:
    told = {
        finding
        for check in (events_off, discovery_missing, check_dials_out)
        for one in check.look(facts)
        for finding in one.workers
    }
    bad: dict[str, str] = {}
    remedies: list[str] = []
    down = {worker.id for worker in facts.router.workers if worker.state == "down"}
    for source in _sources(facts):
        if source.following or source.state == "catching_up":
            continue
        if source.worker in told | down or source.reason in _ELSEWHERE:
            continue
        if source.state == NO_SOURCE:
            bad[source.worker] = source.message or source.reason
            remedies.append(source.message)
        else:
            bad[source.worker] = f"{source.state} at {source.endpoint}"
    known = {source.worker for source in _sources(facts)}
    for worker in facts.workers:
        routed = any(one.id == worker.name for one in facts.router.workers)
        if _published(worker) and worker.name not in known and routed:
            bad[worker.name] = "it publishes, and the router does not listen"
    return worker_finding(
        Severity.ERROR,
        "Workers publish KV events which the router does not receive.",
        " ".join(dict.fromkeys(text for text in remedies if text))
        or "Let the router reach the endpoint: is the port open from its host (NetworkPolicy, "
        "container port), and is it the worker's own?",
        bad,
    )


@doctor_check("KvEventSourceShared", "Each worker has an endpoint of its own")
def source_shared(facts: FleetFacts) -> Iterator[DoctorFinding]:
    named = ((s.worker, s.endpoint) for s in _sources(facts) if s.endpoint)
    for endpoint, workers in groups(named):
        if len(set(workers)) > 1:
            yield DoctorFinding(
                Severity.ERROR,
                "Several workers are followed at one endpoint: each is believed to hold what only "
                "one of them does.",
                "Give each worker a port (or socket) of its own in --kv-events-config.",
                (f"{endpoint}: {', '.join(sorted(set(workers)))}",),
                tuple(sorted(set(workers))),
            )


@doctor_check("KvEventsLate", "Events arrive in time")
def check_event_lag(facts: FleetFacts) -> Iterator[DoctorFinding]:
    late = {s.worker: s.lag_s for s in _sources(facts) if s.lag_s > LAG_S}
    stale = any(seconds > STALE_S for seconds in late.values())
    return worker_finding(
        Severity.ERROR if stale else Severity.WARNING,
        "Events arrive late: the router decides by what caches held some time ago.",
        "Compare the clocks of the two machines first (the lag is between them). Else the router "
        "has too little CPU for the events it gets: see emberline_router_overhead_seconds, or run "
        "more replicas of it.",
        {name: f"{seconds:.1f} s" for name, seconds in late.items()},
    )


@doctor_check("KvEventsLost", "No event is lost for good")
def check_lost_events(facts: FleetFacts) -> Iterator[DoctorFinding]:
    losing = {s.worker: s for s in _sources(facts) if s.lost}
    often = any(s.lost * _BATCHES_A_LOSS > s.batches for s in losing.values())
    return worker_finding(
        Severity.WARNING if often else Severity.INFO,
        "Events were lost since the router's start and could not be had again, so what was known "
        "of a worker's cache was dropped and learnt anew.",
        "Set replay_endpoint, and raise buffer_steps (10,000 by default) and hwm in "
        "--kv-events-config if the network or the router pauses for long.",
        {name: _counts_text(source.counts) for name, source in losing.items()},
    )


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{key} {count}" for key, count in counts.items())


@doctor_check("KvEventsNotUnderstood", "Every event is understood")
def check_malformed_events(facts: FleetFacts) -> Iterator[DoctorFinding]:
    bad = {s.worker: {**s.errors, **s.skipped} for s in _sources(facts) if s.errors or s.skipped}
    return worker_finding(
        Severity.WARNING,
        "Some of what workers publish is not understood: the router may know less than there is, "
        "or something else answers at that port.",
        "Compare the version of vLLM with the one this router was tried with, and look at what "
        "listens at the endpoint.",
        {name: _counts_text(what) for name, what in bad.items()},
    )
