"""Facts of a healthy fleet, for tests to break one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from routing.analysis.kv_index import KvIndex, KvSource, PredictionAccuracy, Probe
from routing.client.admin_client import RouterWorker
from routing.doctor.checks import CHECKS
from routing.doctor.checks.availability import METRICS
from routing.doctor.facts import (
    CacheConfig,
    FleetFacts,
    Model,
    PlacementFacts,
    Publisher,
    RouterFacts,
    Statement,
    WorkerFacts,
)
from routing.doctor.findings import CheckOutcome
from routing.doctor.inspection import CHAT, PLAIN

NOW = 1_795_000_000.0
BY_CODE = {check.code: check for check in CHECKS}


def worker(number: int = 0, **changes: Any) -> WorkerFacts:
    facts = WorkerFacts(
        name=f"w{number}",
        url=f"http://127.0.0.1:{8000 + number}",
        version=Statement("0.32.0", status=200),
        models=Statement((Model("demo", "smollm2", "", 8192),), status=200),
        cache=Statement(CacheConfig(True, "32", "sha256", "True"), status=200),
        publishers=Statement(
            (Publisher("0", True, "tcp://*:5557", "tcp://*:5558", 10_000),), status=200
        ),
        tokens=Statement({PLAIN: (1, 2), CHAT: (9, 1, 2, 8)}, status=200),
    )
    return replace(facts, **changes)


def source(number: int = 0, **changes: Any) -> KvSource:
    port = 5000 + 2 * number
    facts = KvSource(
        worker=f"w{number}",
        state="following",
        endpoint=f"tcp://127.0.0.1:{port}",
        replay=f"tcp://127.0.0.1:{port + 1}",
        blocks=100,
        counts={"connected": 1, "replay": 1},
    )
    return replace(facts, **changes)


def index(**changes: Any) -> KvIndex:
    facts = KvIndex(
        telling=True,
        blocks=200,
        block_sizes=(32,),
        pending=0,
        sources=(source(0), source(1)),
        honesty={"w0": PredictionAccuracy(answers=30), "w1": PredictionAccuracy(answers=30)},
        fallbacks={},
        tokenizer="/models/smollm2",
        problem="",
        compared="same",
        differences=(),
        trust="verified",
        recent=None,
        probes={"w0": Probe("hit", NOW - 60, "/v1/completions", 70, 64, 64)},
    )
    return replace(facts, **changes)


def placed(**changes: Any) -> PlacementFacts:
    facts = PlacementFacts(NOW - 5, "kv_hit", "", 200, 320, 400)
    return replace(facts, **changes)


def router(**changes: Any) -> RouterFacts:
    facts = RouterFacts(
        strategy="kvaware",
        workers=(
            RouterWorker("w0", "http://127.0.0.1:8000", "up"),
            RouterWorker("w1", "http://127.0.0.1:8001", "up"),
        ),
        kv=index(),
        decisions=tuple(placed() for _ in range(40)),
        metrics=Statement(METRICS, status=200),
    )
    return replace(facts, **changes)


def fleet(**changes: Any) -> FleetFacts:
    facts = FleetFacts(
        endpoint="demo",
        router=router(),
        workers=(worker(0), worker(1)),
        wanted=frozenset({"w0", "w1"}),
        now=NOW,
    )
    return replace(facts, **changes)


def made(code: str, facts: FleetFacts) -> CheckOutcome:
    return BY_CODE[code].made(facts)
