"""How well routers place requests: ours, vllm-router and smg in front of eight simulated workers.

    .venv/bin/python -m bench.routing_quality [--only ours/prefixaware,smg] [--workload 8k]

The workers are bench/fleet's model behind sockets, the requests those of `python -m bench.fleet`,
held half. The simulation's clock stands still while a router has something to do (lockstep.py), so
the time to the first token is the model's, from the request's arrival at a worker: neither a
router's own latency, which is measured elsewhere, nor this machine's delays are in it. The oracles
and our `virtual` row are computed without sockets, over the same requests and the same model. A run
ends when its last request came to a worker; what workers still hold is then computed alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import uvloop

from bench import peers
from bench.fleet import runner, workloads
from bench.fleet.client import Client
from bench.fleet.events import BLOCK_IDS, Publishers
from bench.fleet.hardware import HARDWARE, Hardware
from bench.fleet.lockstep import Lockstep
from bench.fleet.oracle import Oracle
from bench.fleet.ours import Ours, Setting
from bench.fleet.prompts import MODEL
from bench.fleet.runner import WARM_UP, Result, summary
from bench.fleet.serve import ServedFleet
from bench.fleet.tables import HEAD, line
from bench.rig import LOAD_CORE, ROUTER_CORE, busy, free_ports, machine

WORKERS = 8
OURS = "ours"

# Every policy which places by prompt, session, load or turn; the rest need what vLLM has not.
ROUTERS = (
    (OURS, "prefixaware"),
    (OURS, "session"),
    (OURS, "roundrobin"),
    (peers.VLLM_ROUTER, "cache_aware"),
    (peers.VLLM_ROUTER, "kv_aware"),
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


@dataclass(frozen=True)
class Case:
    router: str
    policy: str
    workload: str
    hardware: Hardware
    speed: float
    seed: int

    @property
    def title(self) -> str:
        return f"{self.router} {self.policy}".strip()


@dataclass(frozen=True)
class Outcome:
    result: Result
    lost: int  # requests which did not come to a worker
    held: int  # what the router kept so long that the clock went on without it
    errors: dict[str, int]
    seconds: float  # real ones


def _ours(policy: str, urls: Sequence[str], port: int) -> peers.Process:
    command = [sys.executable, "-m", "routing.engine", "--listen", f"127.0.0.1:{port}"]
    for url in urls:
        command += ["--worker", url]
    command += ["--strategy", policy, "--model", MODEL]
    if policy == "session":
        command += ["--session-key", "header:x-session-id"]
    process = peers.Process(command, port, ROUTER_CORE)
    process.wait_until_serving()
    return process


def _kv_flags(urls: Sequence[str], event_ports: Sequence[int]) -> list[str]:
    flags = ["--kv-event-block-size", str(BLOCK_IDS), "--kv-event-model", MODEL]
    for url, port in zip(urls, event_ports, strict=True):
        flags += ["--kv-event-source", f"{url}=tcp://127.0.0.1:{port}"]
    return flags


def _start(
    case: Case, ports: Sequence[int], port: int, event_ports: Sequence[int]
) -> peers.Process:
    urls = [f"http://127.0.0.1:{worker}" for worker in ports]
    if case.router == OURS:
        return _ours(case.policy, urls, port)
    extra: list[str] = []
    if case.policy == "kv_aware":
        extra = _kv_flags(urls, event_ports)
    if case.policy == "consistent_hashing":
        extra = ["--routing-key-headers", "x-session-id"]
    return peers.start(case.router, case.policy, urls, port, ROUTER_CORE, extra)


async def run(case: Case) -> Outcome:
    asks = workloads.asks(case.workload, case.hardware, WORKERS, case.seed)
    ports = free_ports(2 * WORKERS + 1)
    port, event_ports = ports.pop(), ports[WORKERS:]
    async with ServedFleet(case.hardware, ports[:WORKERS], asks) as fleet:
        # vllm-router asks workers for token ids: without any, cache_aware matches nothing.
        fleet.renders = case.policy in ("kv_aware", "cache_aware")
        kv_aware = case.policy == "kv_aware"
        publishers = Publishers(event_ports, fleet.workers) if kv_aware else None
        start = partial(_start, case, ports[:WORKERS], port, event_ports)
        try:
            router = await asyncio.get_running_loop().run_in_executor(None, start)
            with router:
                return await _measure(case, fleet, port, publishers)
        finally:
            if publishers is not None:
                publishers.close()


async def _measure(
    case: Case, fleet: ServedFleet, port: int, publishers: Publishers | None
) -> Outcome:
    asks = fleet.asks
    warm = int(len(asks) * WARM_UP)
    began = time.perf_counter()
    client = Client(port)
    lockstep = Lockstep(fleet, client, case.speed, publishers)
    busy_s = await lockstep.run(warm)
    jobs = [job for job in fleet.jobs[warm:] if job is not None]
    result = summary(
        case.title,
        [job.first_at - job.arrived for job in jobs],
        sum(job.cached for job in jobs),
        sum(job.prompt_tokens for job in jobs),
        busy_s,
        asks[-1].at - asks[warm].at,
    )
    lost = sum(job is None for job in fleet.jobs)
    return Outcome(result, lost, lockstep.held, client.errors, time.perf_counter() - began)


# -- what is printed


def _reference(workload: str, hardware: Hardware, seed: int) -> Result:
    """The oracle's result; prints it, a more patient one's, and ours without sockets."""
    asks = workloads.asks(workload, hardware, WORKERS, seed)
    oracle = runner.run(asks, hardware, WORKERS, Oracle())
    patient = runner.run(asks, hardware, WORKERS, Oracle("oracle, patient", 2.0))
    ours = runner.run(asks, hardware, WORKERS, Ours(Setting(), WORKERS, hardware, seed))
    print(f"\n{hardware.name}, {workload}: {len(asks)} requests in {asks[-1].at:.0f} s\n{HEAD}")
    for result in (oracle, patient, replace(ours, name="ours prefixaware, virtual")):
        print(line(result, oracle))
    return oracle


def _show(outcome: Outcome, oracle: Result) -> None:
    notes = [f"{outcome.seconds:.0f} s"]
    if outcome.held:
        notes.append(f"HELD {outcome.held}")
    if outcome.lost:
        notes.append(f"LOST {outcome.lost}")
    notes += [f"{count} x {what}" for what, count in outcome.errors.items()]
    print(f"{line(outcome.result, oracle)}  {', '.join(notes)}", flush=True)


def _chosen(only: str) -> list[tuple[str, str]]:
    """`only`: router or router/policy, separated by commas; nothing: all."""
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
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    chosen = _chosen(flags.only)
    hardware = HARDWARE[flags.hardware]
    versions = ", ".join(f"{peer} {version}" for peer, version in peers.VERSIONS.items())
    limit = f"clock at most {flags.speed:g} times real time"
    print(f"{machine()}; {versions}; {WORKERS} workers, {limit}\n{busy()}")
    if any(router != OURS for router, _ in chosen):
        peers.prepare()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.sched_setaffinity(0, {LOAD_CORE})
    began = time.perf_counter()
    for workload in flags.workload or workloads.MAIN:
        oracle = _reference(workload, hardware, flags.seed)
        for router, policy in chosen:
            case = Case(router, policy, workload, hardware, flags.speed, flags.seed)
            _show(uvloop.run(run(case)), oracle)
    print(f"\n{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
