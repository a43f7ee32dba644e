"""python -m bench.published: the published comparison of HyperPod's cache and routing, simulated.

Published for Llama-3.1-70B on seven replicas: tiered cache (L1 and L2) and prefix-aware routing
against none, with contexts of 8k and 64k tokens. Request rates, number of documents and whether the
baseline had vLLM's own prefix cache are not published; here a fixed number of clients ask one
question after the other about shared documents (bench/fleet/workloads.py), and both baselines are
shown. Virtual time; workers of dashboards/insight/whatif/simulation/hardware.py, that is eight
H100 each.

`--clients`: per worker, for each context; by default the smallest number of 1, 2, 4 ... with which
the baseline's throughput is within 10 % of its highest, so that both sides do the same work at the
baseline's full load.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.fleet.workloads import LIBRARIES, documents
from bench.rig import machine
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import LLAMA_70B, Hardware, TierModel
from dashboards.insight.whatif.simulation.replay import share, simulate
from dashboards.insight.whatif.simulation.routers import RouterChooser, RouterSetting

WORKERS = 7
LEVELS = (1, 2, 4, 8, 16, 32, 64)
# Change of TTFT p50, p90, throughput and cost per token.
PUBLISHED = {"8k": (-0.72, -0.40, 0.24, -0.21), "64k": (-0.94, -0.35, 0.38, -0.28)}
# L1: 1.5 TB of a node's memory over eight PCIe links; L2: 3 TB of all nodes over 400 Gbit/s.
TIERED = replace(
    LLAMA_70B,
    l1=TierModel(4 * LLAMA_70B.cache_tokens, 2e-6, 0.001),
    l2=TierModel(8 * LLAMA_70B.cache_tokens, 8e-6, 0.005),
)
NO_REUSE = replace(LLAMA_70B, name="no prefix cache")


@dataclass(frozen=True)
class Outcome:
    """TTFT in seconds; throughput in output tokens per second of all workers."""

    p50: float
    p90: float
    hit_rate: float
    throughput: float

    def against(self, base: Outcome) -> tuple[float, float, float, float]:
        """Return the change of TTFT p50, p90, throughput and cost: workers' time per token."""
        more = self.throughput / base.throughput
        return (self.p50 / base.p50 - 1, self.p90 / base.p90 - 1, more - 1, 1 / more - 1)


def closed_loop(context: str, clients: int, seed: int, reuse: bool) -> list[PlannedRequest]:
    """Return questions of which each client asks the next when its last answer ends."""
    drawn = documents(LIBRARIES[context], 1.0, seed, WORKERS, LLAMA_70B)
    chance = random.Random(seed)
    unnamed = itertools.count(-1, -1)
    requests = []
    for number, request in enumerate(drawn):
        chain = request.chain if reuse else [next(unnamed) for _ in request.chain]
        after = (number - clients,) if number >= clients else ()
        at = 0.0 if after else chance.random()
        requests.append(replace(request, at=at, chain=chain, after=after))
    return requests


def measure(
    context: str, clients: int, seeds: Sequence[int], hardware: Hardware, strategy: str
) -> Outcome:
    found = []
    for seed in seeds:
        requests = closed_loop(context, clients, seed, reuse=hardware is not NO_REUSE)
        chooser = RouterChooser(RouterSetting(strategy), WORKERS, hardware, seed)
        jobs = simulate(requests, hardware, WORKERS, chooser).counted[:-clients]  # no tail
        ttft = [job.first_at - job.arrived for job in jobs]
        span = max(job.done_at for job in jobs) - min(job.arrived for job in jobs)
        found.append(
            Outcome(
                share(ttft, 0.5),
                share(ttft, 0.9),
                sum(job.cached for job in jobs) / sum(job.prompt_tokens for job in jobs),
                sum(job.answer_tokens for job in jobs) / span,
            )
        )
    columns = zip(*((o.p50, o.p90, o.hit_rate, o.throughput) for o in found), strict=True)
    return Outcome(*(statistics.mean(column) for column in columns))


def full_load(context: str, seeds: Sequence[int]) -> int:
    """Return the clients per worker with which the baseline reaches its throughput."""
    reached = {
        level: measure(context, level * WORKERS, seeds, LLAMA_70B, "roundrobin").throughput
        for level in LEVELS
    }
    return min(level for level in LEVELS if reached[level] >= 0.9 * max(reached.values()))


def compare(context: str, level: int, seeds: Sequence[int]) -> None:
    clients = level * WORKERS
    print(f"\n{context}, {clients} clients ({level} per worker)")
    print(f"{'':38}{'TTFT p50 s':>11}{'p90 s':>8}{'hit':>8}{'tokens/s':>10}   change")

    def show(title: str, outcome: Outcome, *bases: Outcome) -> None:
        changes = "; ".join(
            " ".join(f"{change:+.0%}" for change in outcome.against(base)) for base in bases
        )
        print(
            f"{title:38}{outcome.p50:11.3f}{outcome.p90:8.3f}{outcome.hit_rate:8.1%}"
            f"{outcome.throughput:10.0f}   {changes}",
            flush=True,
        )

    none = measure(context, clients, seeds, NO_REUSE, "roundrobin")
    own = measure(context, clients, seeds, LLAMA_70B, "roundrobin")
    show("A round robin, no prefix cache", none)
    show("B round robin, vLLM's prefix cache", own)
    for strategy in ("prefixaware", "kvaware"):
        show(strategy, measure(context, clients, seeds, LLAMA_70B, strategy), none, own)
        show(f"{strategy}, L1, L2", measure(context, clients, seeds, TIERED, strategy), none, own)
    show("round robin, L1, L2", measure(context, clients, seeds, TIERED, "roundrobin"), none, own)
    published = " ".join(f"{change:+.0%}" for change in PUBLISHED[context])
    print(f"{'published':75}   {published}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.published", description=__doc__)
    parser.add_argument("--context", action="append", choices=tuple(PUBLISHED))
    parser.add_argument("--clients", type=int, default=0, help="per worker; 0: at full load")
    parser.add_argument("--seeds", type=int, default=3)
    flags = parser.parse_args()
    seeds = range(1, flags.seeds + 1)
    print(f"{machine()}; Llama-3.1-70B simulated, {WORKERS} workers; {flags.seeds} seeds")
    print("change: TTFT p50, p90, throughput, cost per token; against A; against B")
    for context in flags.context or PUBLISHED:
        compare(context, flags.clients or full_load(context, seeds[:1]), seeds)


if __name__ == "__main__":
    main()
