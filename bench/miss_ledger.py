"""Causes of the miss ledger on recorded traces, beside what the workers know.

    .venv/bin/python -m bench.miss_ledger [--workload agents] [--strategy kvaware] [--requests 1500]

The real router in front of eight simulated workers (bench/fleet, lockstep). A worker knows of each
prompt block that it computes whether any worker has had it, has it now, or is computing it. Where
several causes are true, such as evicted here and present elsewhere, each of them counts as right.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop

from bench.fleet import workloads
from bench.fleet.client import Client
from bench.fleet.events import Publishers
from bench.fleet.lockstep import Lockstep
from bench.fleet.serve import ServedFleet
from bench.rig import LOAD_CORE, busy, free_ports, machine
from bench.routing_quality import KVAWARE, OURS, WORKERS, Case, _ids, _start
from routing.whatif.simulation.arrivals import PlannedRequest
from routing.whatif.simulation.hardware import BLOCK_TOKENS, HARDWARE, Hardware
from routing.whatif.simulation.worker import FleetWorker, Job

FIRST, PLACED, IN_FLIGHT, EVICTED, BELOW = "first seen", "placed", "in flight", "evicted", "below"
Truth = Counter[frozenset[str]]  # tokens by the causes that are true of them


def _group(cause: str) -> str:
    """Return the group of a ledger's cause; other codes stand for themselves."""
    if cause.startswith("placed"):
        return PLACED
    if cause.startswith(("evicted", "lost")):
        return EVICTED
    return {"first_seen": FIRST, "in_flight": IN_FLIGHT, "below_block": BELOW}.get(cause, cause)


class Witness:
    """What all workers have computed and are computing, by block."""

    def __init__(self) -> None:
        self.workers: list[WitnessedWorker] = []
        self.computing: defaultdict[int, set[int]] = defaultdict(set)  # numbers of requests
        self.known_to: defaultdict[int, set[int]] = defaultdict(set)  # workers that have had it
        self.truths: dict[int, Truth] = {}

    def causes(self, block: int, here: WitnessedWorker) -> frozenset[str]:
        found = set()
        if here.number in self.known_to[block]:
            found.add(EVICTED)
        if any(one.cache.holds(block) for one in self.workers if one is not here):
            found.add(PLACED)
        elif self.known_to[block]:
            found.add(EVICTED)  # elsewhere
        if self.computing[block]:
            found |= {IN_FLIGHT, PLACED}
        return frozenset(found or {FIRST})


class WitnessedWorker(FleetWorker):
    def __init__(self, hardware: Hardware, number: int, witness: Witness) -> None:
        super().__init__(hardware)
        self.number = number
        self.witness = witness

    def submit(self, job: Job, now: float) -> None:
        super().submit(job, now)
        for block in job.chain:
            self.witness.computing[block].add(job.tag)

    def _start(self, job: Job) -> bool:
        witness = self.witness
        for block in job.chain:
            witness.computing[block].discard(job.tag)
        if not super()._start(job):
            return False
        truth: Truth = Counter()
        for block in job.chain[len(job.held) :]:
            truth[witness.causes(block, self)] += BLOCK_TOKENS
        tail = job.prompt_tokens - len(job.chain) * BLOCK_TOKENS
        # New text, and less than a block of the model.
        truth[frozenset((FIRST, BELOW))] += tail
        witness.truths[job.tag] = truth
        for block in job.chain:
            witness.known_to[block].add(self.number)
        return True


class WitnessedFleet(ServedFleet):
    def __init__(
        self, hardware: Hardware, ports: Sequence[int], asks: Sequence[PlannedRequest]
    ) -> None:
        super().__init__(hardware, ports, asks)
        self.witness = Witness()
        workers = [WitnessedWorker(hardware, n, self.witness) for n in range(len(ports))]
        self.workers = list(workers)
        self.witness.workers = workers
        self.answered: list[Job] = []

    def advance(self, worker: FleetWorker) -> tuple[list[Job], list[Job]]:
        first, done = super().advance(worker)
        self.answered += done
        return first, done


async def run(case: Case, folder: Path) -> tuple[WitnessedFleet, dict[int, dict[str, int]]]:
    """Return the fleet, and the ledger's tokens by cause of each request."""
    log = folder / "decisions"
    case = replace(case, config={"decisions": {"file": str(log), "sample": 1}})
    asks = case.asks()
    ports = free_ports(2 * WORKERS + 1)
    port, event_ports = ports.pop(), ports[WORKERS:]
    async with WitnessedFleet(case.hardware, ports[:WORKERS], asks) as fleet:
        fleet.ids = ids = _ids(case)
        publishers = None
        if case.policy == KVAWARE and ids is not None:
            publishers = Publishers(event_ports, fleet.workers, ids)
        loop = asyncio.get_running_loop()
        start = partial(_start, case, ports[:WORKERS], port, event_ports)
        try:
            with await loop.run_in_executor(None, start):
                await Lockstep(fleet, Client(port), case.speed, publishers).run(0)
                answered = {job.tag for job in fleet.answered}
                until = time.monotonic() + 30
                while time.monotonic() < until:
                    found = _read(log)
                    if answered <= found.keys():
                        break
                    await asyncio.sleep(0.5)
        finally:
            if publishers is not None:
                publishers.close()
    return fleet, found


def _read(log: Path) -> dict[int, dict[str, int]]:
    found = {}
    for file in log.parent.glob(f"{log.name}*"):
        for line in file.read_text().splitlines():
            decision = json.loads(line)
            if decision["misses"] is not None:
                found[int(decision["request_id"])] = decision["misses"]["causes"]
    return found


def _agreement(truth: Truth, reported: Counter[str]) -> Counter[str]:
    """Return the tokens by group that are true; those with few true causes are matched first."""
    left, right = Counter(reported), Counter[str]()
    for causes, tokens in sorted(truth.items(), key=lambda item: len(item[0])):
        for cause in sorted(causes):
            both = min(left[cause], tokens)
            left[cause] -= both
            right[cause] += both
            tokens -= both
    return right


def show(fleet: WitnessedFleet, found: dict[int, dict[str, int]]) -> None:
    jobs = [job for job in fleet.answered if job.tag in found]
    missing = len(fleet.answered) - len(jobs)
    computed = sum(job.prompt_tokens - job.cached for job in jobs)
    reported: Counter[str] = Counter()
    right: Counter[str] = Counter()
    true_of: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    for job in jobs:
        groups: Counter[str] = Counter()
        for cause, tokens in found[job.tag].items():
            groups[_group(cause)] += tokens
            codes[cause] += tokens
        reported += groups
        truth = fleet.witness.truths[job.tag]
        right += _agreement(truth, groups)
        for causes, tokens in truth.items():
            true_of[" or ".join(sorted(causes))] += tokens
    total = sum(reported.values())
    print(f"{len(jobs)} answers, {missing} without a split; prompt tokens computed: workers")
    print(f"{computed:,}, ledger {total:,} ({100 * (total / computed - 1):+.2f} %)")
    print(f"right: {100 * sum(right.values()) / total:.1f} % of the computed tokens\n")
    print("| cause | ledger, tokens | share | right |\n|---|---|---|---|")
    for group, tokens in reported.most_common():
        share, good = 100 * tokens / total, 100 * right[group] / tokens
        print(f"| {group} | {tokens:,} | {share:.1f} % | {good:.1f} % |")
    print("\n| true | tokens |\n|---|---|")
    for name, tokens in true_of.most_common():
        print(f"| {name} | {tokens:,} |")
    print("\ncodes:", ", ".join(f"{code} {tokens:,}" for code, tokens in codes.most_common()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workload", choices=workloads.ALL, default=workloads.CONVERSATION)
    parser.add_argument("--strategy", choices=(KVAWARE, "prefixaware"), default=KVAWARE)
    parser.add_argument("--hardware", choices=HARDWARE, default="70b")
    parser.add_argument("--speed", type=float, default=20.0, help="of the clock, at most")
    parser.add_argument("--requests", type=int, help="the first so many only")
    flags = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.sched_setaffinity(0, {LOAD_CORE})
    hardware = HARDWARE[flags.hardware]
    case = Case(
        *(OURS, flags.strategy, flags.workload, hardware, flags.speed, 1, flags.requests),
    )
    print(f"{machine()}; {case.title}, {case.workload}, {WORKERS} workers\n{busy()}")
    with tempfile.TemporaryDirectory() as folder:
        fleet, found = uvloop.run(run(case, Path(folder)))
    show(fleet, found)


if __name__ == "__main__":
    main()
