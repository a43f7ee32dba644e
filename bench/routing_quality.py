"""Placement quality of routers: ours, vllm-router and smg in front of eight simulated workers.

    .venv/bin/python -m bench.routing_quality [--only ours/prefixaware,smg] [--workload 8k]
    ... --only ours/kvaware --workload agents --requests 1000 --seeds 6 --routers 1 --routers 2

The workers are bench/fleet's model behind sockets, the requests those of `python -m bench.fleet`,
evaluation half. The simulation clock waits for the router (lockstep.py), so that TTFT is the
model's, from arrival at a worker, without the router's latency (measured elsewhere) or this
machine's delays. The oracles and our `virtual` rows are computed without sockets on the same
requests and model. A run ends when the last request has reached a worker; the model then finishes
alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import resource
import socket
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bench import peers
from bench.fleet import workloads
from bench.fleet.client import Client
from bench.fleet.events import Publishers
from bench.fleet.lockstep import Lockstep
from bench.fleet.oracle import Oracle
from bench.fleet.prompts import MODEL, Ids
from bench.fleet.router_states import RouterStates
from bench.fleet.serve import ServedFleet
from bench.fleet.tables import EVALUATION_HALF, HEAD, PATIENT, line, show_by_seed
from bench.rig import LOAD_CORE, ROUTER_CORE, busy, free_ports, machine, wait_for
from console.launcher.tools import valkey_server
from dashboards.insight.whatif.simulation import replay
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import HARDWARE, Hardware
from dashboards.insight.whatif.simulation.replay import WARM_UP, FleetResult, summary
from dashboards.insight.whatif.simulation.routers import RouterChooser, RouterSetting
from tests.support.waiting import until

WORKERS = 8
OURS = "ours"
KVAWARE, KV_AWARE = "kvaware", "kv_aware"  # ours, vllm-router's
FEW_IDS = 32  # simulated tokens for each id sent to vllm-router

# All policies by prompt, session, load or turn; the others need features that vLLM lacks.
ROUTERS = (
    (OURS, KVAWARE),
    (OURS, "prefixaware"),
    (OURS, "session"),
    (OURS, "roundrobin"),
    (peers.VLLM_ROUTER, "cache_aware"),
    (peers.VLLM_ROUTER, KV_AWARE),
    (peers.VLLM_ROUTER, "consistent_hash"),
    (peers.VLLM_ROUTER, "power_of_two"),
    (peers.VLLM_ROUTER, "round_robin"),
    (peers.SMG, "cache_aware"),
    (peers.SMG, "prefix_hash"),
    (peers.SMG, "consistent_hashing"),
    (peers.SMG, "power_of_two"),
    (peers.SMG, "least_load"),
    (peers.SMG, "round_robin"),
)


def _count(routers: int) -> str:
    return f" ×{routers}" if routers > 1 else ""


@dataclass(frozen=True)
class Case:
    router: str
    policy: str
    workload: str
    hardware: Hardware
    speed: float
    seed: int
    most: int | None = None  # maximum number of requests
    fill: float = 1.0  # factor of the workload's rate
    half: int = EVALUATION_HALF
    config: Mapping[str, object] = field(default_factory=dict)  # of ours, beside the usual
    routers: int = 1  # of ours; several share their state through a Valkey

    @property
    def title(self) -> str:
        return f"{self.router} {self.policy}{_count(self.routers)}".strip()

    def admins(self, port: int) -> list[int]:
        """Return the admin ports of our routers, the first of which listens at `port`."""
        return [port + 2 * number + 1 for number in range(self.routers)]

    def asks(self) -> list[PlannedRequest]:
        rate = workloads.RATES[self.hardware.name, self.workload] * self.fill
        asks = workloads.asks(self.workload, self.hardware, WORKERS, self.seed, self.half, rate)
        return asks[: self.most]


@dataclass(frozen=True)
class Outcome:
    result: FleetResult
    lost: int  # requests that did not reach a worker
    held: int  # requests held by the router beyond the timeout
    late: int  # of our routers: waits for events or exchanged state that timed out
    away: int  # of our routers: connections to the state store lost
    errors: dict[str, int]
    seconds: float  # real time
    blind: dict[str, int]  # kvaware fallbacks by reason


def _ids(case: Case) -> Ids | None:
    """Return token ids if the router requests them: vllm-router's cache_aware matches nothing
    without.
    """
    if case.router == OURS:
        return Ids(1) if case.policy == KVAWARE else None  # its cost counts tokens
    return Ids(FEW_IDS) if case.policy in (KV_AWARE, "cache_aware") else None


def _ours(
    case: Case, urls: Sequence[str], port: int, event_ports: Sequence[int]
) -> contextlib.ExitStack:
    """Start our routers at `port` and every second port behind it, several with a Valkey.

    Worker ids and hash key are the same in each run: consistent hashing, which places new prefixes,
    depends on both.
    """
    with contextlib.ExitStack() as started:
        folder = Path(started.enter_context(tempfile.TemporaryDirectory()))
        (folder / "hash.key").write_text("h" * 64)
        workers = [{"id": f"w{number}", "url": url} for number, url in enumerate(urls)]
        if case.policy == KVAWARE:
            for worker, events in zip(workers, event_ports, strict=True):
                worker["kv_events"] = f"tcp://127.0.0.1:{events}"
        config: dict[str, object] = {
            "strategy": case.policy,
            "model": MODEL,
            "workers": workers,
            # Wait for slow tokenization by this machine; the model has no prompts of probes.
            "kv": {"wait_s": 10, "probe_interval_s": 0},
            "hash_key_file": "hash.key",
            **case.config,
        }
        if case.routers > 1:
            store = _store(folder, started)
            config["state_store"] = {"url": f"redis://127.0.0.1:{store}", "routers": case.routers}
        for admin in case.admins(port):
            own = {"listen": f"127.0.0.1:{admin - 1}", "admin": f"127.0.0.1:{admin}"}
            file = folder / f"{admin}.json"
            file.write_text(json.dumps(config | own))
            command = [sys.executable, "-m", "routing.engine", "--config", str(file)]
            process = started.enter_context(peers.Process(command, admin - 1, ROUTER_CORE))
            process.wait_until_serving()
        for admin in case.admins(port):
            if case.policy == KVAWARE:
                _wait_until_following(admin, len(urls))
            until(partial(_sizes_known, admin), 20.0, "the workers' cache sizes are known")
            if case.routers > 1:
                until(
                    partial(_has_peers, admin, case.routers - 1),
                    20.0,
                    "all routers hear each other",
                )
        return started.pop_all()


def _store(folder: Path, started: contextlib.ExitStack) -> int:
    """Start a Valkey; return its port."""
    binary = valkey_server()
    assert binary is not None, "no Valkey: make install"
    (store,) = free_ports(1)
    argv = [str(binary), "--port", str(store), "--bind", "127.0.0.1", "--save", ""]
    started.enter_context(peers.Process([*argv, "--dir", str(folder)], store, LOAD_CORE))
    wait_for(store)
    return store


def _sizes_known(admin: int) -> bool:
    return all(worker["cache_tokens"] for worker in _admin(admin, "/workers")["workers"])


def _has_peers(admin: int, others: int) -> bool:
    return len(_admin(admin, "/peers")["exchange"]["peers"]) == others


def _admin(port: int, page: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", page)
        found: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return found


def _index(admin: int) -> dict[str, Any]:
    """Return our router's kvaware status."""
    found: dict[str, Any] = _admin(admin, "/index")["kv"]
    return found


def _wait_until_following(admin: int, workers: int) -> None:
    """Wait until it follows the events of that many workers."""

    def followed() -> bool:
        kv = _index(admin)
        states = [source["state"] for source in kv["sources"]]
        return bool(kv["telling"]) and states.count("following") == workers

    until(followed, 20.0, "all events are followed")


def _kv_flags(urls: Sequence[str], event_ports: Sequence[int]) -> list[str]:
    flags = ["--kv-event-block-size", str(Ids(FEW_IDS).a_block), "--kv-event-model", MODEL]
    for url, port in zip(urls, event_ports, strict=True):
        flags += ["--kv-event-source", f"{url}=tcp://127.0.0.1:{port}"]
    return flags


def _start(
    case: Case, ports: Sequence[int], port: int, event_ports: Sequence[int]
) -> AbstractContextManager[object]:
    urls = [f"http://127.0.0.1:{worker}" for worker in ports]
    if case.router == OURS:
        return _ours(case, urls, port, event_ports)
    extra: list[str] = []
    if case.policy == KV_AWARE:
        extra = _kv_flags(urls, event_ports)
    if case.policy == "consistent_hashing":
        extra = ["--routing-key-headers", "x-session-id"]
    return peers.start(case.router, case.policy, urls, port, ROUTER_CORE, extra)


def _free_row(count: int) -> int:
    """Return the first of `count` pairs of consecutive free ports."""
    while True:
        (first,) = free_ports(1)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + 2 * count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


async def run(case: Case) -> Outcome:
    asks = case.asks()
    ports = free_ports(2 * WORKERS)
    event_ports, port = ports[WORKERS:], _free_row(case.routers)
    async with ServedFleet(case.hardware, ports[:WORKERS], asks) as fleet:
        fleet.ids = ids = _ids(case)
        publishers = None
        if case.policy in (KVAWARE, KV_AWARE) and ids is not None:
            publishers = Publishers(event_ports, fleet.workers, ids)
        loop = asyncio.get_running_loop()
        start = partial(_start, case, ports[:WORKERS], port, event_ports)
        try:
            router = await loop.run_in_executor(None, start)
            with router:
                outcome = await _measure(case, fleet, port, publishers)
                return await loop.run_in_executor(None, _noted, case, port, outcome)
        finally:
            if publishers is not None:
                publishers.close()


def _noted(case: Case, port: int, outcome: Outcome) -> Outcome:
    """Add what our routers count."""
    admins = case.admins(port)
    blind: Counter[str] = Counter()
    if case.policy == KVAWARE:
        for admin in admins:
            blind.update(_index(admin)["fallbacks"])
    away = 0
    if case.routers > 1:
        away = sum(_admin(admin, "/peers")["exchange"]["failures"] for admin in admins)
    return replace(outcome, blind=blind, away=away)


async def _measure(
    case: Case, fleet: ServedFleet, port: int, publishers: Publishers | None
) -> Outcome:
    asks = fleet.asks
    warm = int(len(asks) * WARM_UP)
    began = time.perf_counter()
    client = Client(*range(port, port + 2 * case.routers, 2))
    routers = None
    if case.router == OURS and (publishers is not None or case.routers > 1):
        routers = RouterStates(case.admins(port))
    lockstep = Lockstep(fleet, client, case.speed, publishers, routers)
    busy_s = await lockstep.run(warm)
    counted = (fleet.jobs[number] for number in lockstep.order[warm:])
    jobs = [job for job in counted if job is not None]
    result = summary(
        case.title,
        [job.first_at - job.arrived for job in jobs],
        sum(job.cached for job in jobs),
        sum(job.prompt_tokens for job in jobs),
        busy_s,
        max(job.arrived for job in jobs) - min(job.arrived for job in jobs),
    )
    lost = sum(job is None for job in fleet.jobs)
    late = routers.late if routers is not None else 0
    seconds = time.perf_counter() - began
    return Outcome(result, lost, lockstep.held, late, 0, client.errors, seconds, {})


# -- output


Results = defaultdict[tuple[str, str, int], list[FleetResult]]  # by seed: router, policy, routers
VIRTUAL = f"{OURS}, virtual"  # our routers without sockets


def _reference(case: Case, counts: Sequence[int], found: Results) -> FleetResult:
    """Return the oracle's result; print it, the patient oracle's, and ours without sockets."""
    hardware, asks = case.hardware, case.asks()
    oracle = replay.run(asks, hardware, WORKERS, Oracle())
    patient = replay.run(asks, hardware, WORKERS, PATIENT)
    print(f"\n{hardware.name}, {case.workload}, seed {case.seed}: {len(asks)} requests\n{HEAD}")
    for result in (oracle, patient):
        print(line(result, oracle))
    for strategy in (KVAWARE, "prefixaware"):
        for count in counts:
            setting = RouterSetting(strategy, routers=count, shared=count > 1)
            chooser = RouterChooser(setting, WORKERS, hardware, case.seed)
            ours = replay.run(asks, hardware, WORKERS, chooser)
            ours = replace(ours, name=f"virtual {strategy}{_count(count)}")
            found[VIRTUAL, strategy, count].append(ours)
            print(line(ours, oracle), flush=True)
    return oracle


def _show(outcome: Outcome, oracle: FleetResult) -> None:
    notes = [f"{outcome.seconds:.0f} s"]
    if outcome.held:
        notes.append(f"HELD {outcome.held}")
    if outcome.late:
        notes.append(f"LATE {outcome.late}")
    if outcome.away:
        notes.append(f"STORE LOST {outcome.away}")
    if outcome.lost:
        notes.append(f"LOST {outcome.lost}")
    notes += [f"{count} x {what}" for what, count in outcome.errors.items()]
    notes += [f"{count} blind: {reason}" for reason, count in outcome.blind.items()]
    print(f"{line(outcome.result, oracle)}  {', '.join(notes)}", flush=True)


def _show_ratios(found: Results, first: int) -> None:
    """Print each number of routers relative to `first`, over all seeds."""
    print(f"\n{HEAD.replace('to oracle', 'to first')}")
    for (router, policy, _), results in found.items():
        show_by_seed(results, found[router, policy, first])


def _chosen(only: str) -> list[tuple[str, str]]:
    """Parse `only`: router or router/policy, comma-separated; empty: all."""
    wanted = [item for item in only.split(",") if item]
    chosen = [
        (router, policy)
        for router, policy in ROUTERS
        if not wanted or router in wanted or f"{router}/{policy}" in wanted
    ]
    if not chosen:
        known = ", ".join(f"{router}/{policy}" for router, policy in ROUTERS)
        sys.exit(f"--only {only} names no router: some of {known}")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="routers or router/policy, by commas")
    parser.add_argument("--workload", action="append", choices=workloads.ALL)
    parser.add_argument("--hardware", choices=HARDWARE, default="70b")
    parser.add_argument("--speed", type=float, default=20.0, help="of the clock, at most")
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--fill", type=float, default=1.0, help="of the workload's rate")
    parser.add_argument("--requests", type=int, help="the first so many of each workload only")
    parser.add_argument(
        "--routers", type=int, action="append", help="of ours, sharing their state; repeatable"
    )
    parser.add_argument("--half", type=int, choices=(0, 1), default=EVALUATION_HALF)
    flags = parser.parse_args()
    chosen = _chosen(flags.only)
    counts = flags.routers or [1]
    hardware = HARDWARE[flags.hardware]
    versions = ", ".join(f"{peer} {version}" for peer, version in peers.VERSIONS.items())
    limit = f"clock at most {flags.speed:g} times real time"
    print(f"{machine()}; {versions}; {WORKERS} workers, {limit}\n{busy()}")
    if any(router != OURS for router, _ in chosen):
        if max(counts) > 1:
            parser.error("--routers: only ours share their state, add --only ours")
        peers.prepare()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.sched_setaffinity(0, {LOAD_CORE})
    began = time.perf_counter()
    for workload in flags.workload or workloads.MAIN:
        found: Results = defaultdict(list)
        for seed in range(flags.seed, flags.seed + flags.seeds):
            plain = Case(
                "",
                "",
                workload,
                hardware,
                flags.speed,
                seed,
                flags.requests,
                flags.fill,
                flags.half,
            )
            oracle = _reference(plain, counts, found)
            for router, policy in chosen:
                for count in counts:
                    case = replace(plain, router=router, policy=policy, routers=count)
                    outcome = uvloop.run(run(case))
                    found[router, policy, count].append(outcome.result)
                    _show(outcome, oracle)
        if flags.seeds > 1 or len(counts) > 1:
            _show_ratios(found, counts[0])
    print(f"\n{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
