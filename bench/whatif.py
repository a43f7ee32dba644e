"""python -m bench.whatif: speed of the what-if replay on one core.

Replays the recorded conversation trace, repeated with other prompts until it has the requests of an
hour, and prints CPU seconds. Tiers: 4 times the device's memory in L1, 40 times in L2.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import islice

from bench.fleet.workloads import TRACE, TRACE_GRAIN_S, shared_folder
from bench.rig import machine
from routing.traces.trace import Trace, TraceRequest, read_mooncake
from routing.whatif.model.scenario import Scenario, plan_trace, run_scenario
from routing.whatif.simulation.hardware import LLAMA_70B, TierModel
from routing.whatif.simulation.routers import STRATEGIES

HOUR_S = 3600.0


def hour(requests: int) -> Trace:
    """Return the recorded trace, repeated side by side, at `requests` per hour."""
    with (shared_folder() / TRACE).open("rb") as lines:
        recorded = read_mooncake(lines)
    copies = -(-requests // len(recorded.requests))
    stride = 1 + max(max(request.blocks, default=0) for request in recorded.requests)
    rows: list[TraceRequest] = []
    for copy in range(copies):
        for request in recorded.requests:
            blocks = tuple(block + copy * stride for block in request.blocks)
            session = str(blocks[1]) if len(blocks) > 1 else ""
            rows.append(replace(request, blocks=blocks, session=session))
    rows.sort(key=lambda request: request.arrived_s)
    rows = list(islice(rows, requests))
    scale = HOUR_S / rows[-1].arrived_s
    return Trace(
        recorded.block_tokens,
        [replace(request, arrived_s=request.arrived_s * scale) for request in rows],
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.whatif", description=__doc__)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--replicas", type=int, default=16)
    parser.add_argument("--routers", type=int, default=4)
    parser.add_argument("--strategy", action="append", choices=STRATEGIES)
    flags = parser.parse_args()
    planned = plan_trace(hour(flags.requests), tick_s=TRACE_GRAIN_S * 2)
    print(f"{machine()}\n{flags.requests:,} requests in one hour, {flags.replicas} workers")
    device = LLAMA_70B.cache_tokens
    tiered = replace(
        LLAMA_70B,
        l1=TierModel(4 * device, 2e-6, 0.001),
        l2=TierModel(40 * device, 8e-6, 0.005, "arc"),
    )
    print(f"{'':30}{'CPU s':>8}{'hit':>8}{'L1':>8}{'L2':>8}{'TTFT mean s':>13}{'p90':>8}")
    for strategy in flags.strategy or STRATEGIES:
        for title, hardware, routers in (
            (strategy, LLAMA_70B, 1),
            (f"{strategy}, L1 and L2", tiered, 1),
            (f"{strategy}, {flags.routers} routers", LLAMA_70B, flags.routers),
        ):
            scenario = Scenario(strategy, flags.replicas, hardware, routers)
            began = time.process_time()
            done = run_scenario(scenario, planned)
            seconds = time.process_time() - began
            jobs = done.counted
            prompts = sum(job.prompt_tokens for job in jobs)
            ttft = sorted(job.first_at - job.arrived for job in jobs)
            print(
                f"{title:<30}{seconds:8.1f}"
                f"{sum(job.cached for job in jobs) / prompts:8.1%}"
                f"{sum(job.l1_tokens for job in jobs) / prompts:8.1%}"
                f"{sum(job.l2_tokens for job in jobs) / prompts:8.1%}"
                f"{sum(ttft) / len(ttft):13.3f}{ttft[int(0.9 * len(ttft))]:8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
