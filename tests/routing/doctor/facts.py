"""Facts of a fleet where all is well, for a test to break one thing of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from routing.analysis.kv_index import Honesty, KvIndex, Probe, Source
from routing.doctor.checks import BY_CODE
from routing.doctor.checks.availability import METRICS
from routing.doctor.facts import (
    CacheConfig,
    Facts,
    Model,
    Placed,
    Publisher,
    Routed,
    RouterFacts,
    Said,
    WorkerFacts,
)
from routing.doctor.findings import Outcome
from routing.doctor.inspection import CHAT, PLAIN

NOW = 1_795_000_000.0


def worker(number: int = 0, **changes: Any) -> WorkerFacts:
    facts = WorkerFacts(
        name=f"w{number}",
        url=f"http://127.0.0.1:{8000 + number}",
        version=Said("0.32.0", status=200),
        models=Said((Model("demo", "smollm2", "", 8192),), status=200),
        cache=Said(CacheConfig(True, "32", "sha256", "True"), status=200),
        publishers=Said(
            (Publisher("0", True, "tcp://*:5557", "tcp://*:5558", 10_000),), status=200
        ),
        tokens=Said({PLAIN: (1, 2), CHAT: (9, 1, 2, 8)}, status=200),
    )
    return replace(facts, **changes)


def source(number: int = 0, **changes: Any) -> Source:
    port = 5000 + 2 * number
    facts = Source(
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
        honesty={"w0": Honesty(answers=30), "w1": Honesty(answers=30)},
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


def placed(**changes: Any) -> Placed:
    facts = Placed(NOW - 5, "kv_hit", "", 200, 320, 400)
    return replace(facts, **changes)


def router(**changes: Any) -> RouterFacts:
    facts = RouterFacts(
        strategy="kvaware",
        workers=(
            Routed("w0", "http://127.0.0.1:8000", "up"),
            Routed("w1", "http://127.0.0.1:8001", "up"),
        ),
        kv=index(),
        decisions=tuple(placed() for _ in range(40)),
        metrics=Said(METRICS, status=200),
    )
    return replace(facts, **changes)


def fleet(**changes: Any) -> Facts:
    facts = Facts(
        endpoint="demo",
        router=router(),
        workers=(worker(0), worker(1)),
        wanted=frozenset({"w0", "w1"}),
        now=NOW,
    )
    return replace(facts, **changes)


def made(code: str, facts: Facts) -> Outcome:
    return BY_CODE[code].made(facts)
