"""Traffic as an endpoint would record it, from simulated workers with known constants."""

from __future__ import annotations

import random
from functools import cache

from dashboards.insight.traces.trace import Trace, TraceRequest
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.replay import simulate
from dashboards.insight.whatif.simulation.routers import RouterChooser, RouterSetting
from dashboards.insight.whatif.simulation.worker import Job

BLOCK = 64
TRUTH = Hardware(
    "truth", 0.012, 40e-6, 0.7e-9, 0.3e-3, 60_000, block_tokens=BLOCK, overhead_s=0.008
)
WORKERS = 3


def _requests(count: int, rate: float, seed: int, candidate: str) -> list[PlannedRequest]:
    """Return conversations that grow by 10 to 60 blocks a turn; a canary places every second."""
    chance = random.Random(seed)
    at = 0.0
    open_chats: list[tuple[int, list[int]]] = []
    fresh = 0
    found = []
    for number in range(count):
        at += chance.expovariate(rate)
        if not open_chats or chance.random() < 0.3:
            open_chats.append((number, []))
        session, chain = open_chats[chance.randrange(max(0, len(open_chats) - 12), len(open_chats))]
        more = chance.randint(10, 60)
        chain += range(fresh, fresh + more)
        fresh += more
        tokens = len(chain) * BLOCK + chance.randrange(BLOCK)
        arm = candidate if candidate and session % 2 else "prefixaware"
        answer = chance.randint(5, 150)
        found.append(PlannedRequest(at, list(chain), tokens, answer, session, strategy=arm))
    return found


class RecordingChooser(RouterChooser):
    """Chooser that remembers the placements."""

    def __init__(self, candidate: str = "") -> None:
        super().__init__(RouterSetting("prefixaware", candidate=candidate), WORKERS, TRUTH, 3)
        self.workers: dict[object, int] = {}

    def choose(self, job: Job, now: float, /) -> int:
        self.workers[job.tag] = found = super().choose(job, now)
        return found


@cache
def recorded_traffic(
    count: int = 800,
    rate: float = 6.0,
    noise: float = 0.05,
    slower: float = 1.0,
    candidate: str = "",
) -> Trace:
    """Return recorded requests; TTFT varies by `noise` and is `slower` times as long in the second
    half, as after a change of the machines. `candidate`: strategy of a canary that ran.
    """
    requests = _requests(count, rate, 1, candidate)
    chooser = RecordingChooser(candidate)
    run = simulate(requests, TRUTH, WORKERS, chooser, 0.0)
    chance = random.Random(2)
    rows = []
    for job in run.jobs:
        factor = chance.lognormvariate(0.0, noise) * (slower if job.tag >= count // 2 else 1.0)
        ttft = (job.first_at - job.arrived + TRUTH.overhead_s) * factor
        decode = (job.done_at - job.first_at) * chance.lognormvariate(0.0, noise)
        rows.append(
            TraceRequest(
                job.arrived,
                job.prompt_tokens,
                job.answer_tokens,
                (*job.chain, 10_000_000 + job.tag),
                f"s{job.session}",
                f"w{chooser.workers[job.tag]}",
                ttft,
                job.cached,
                ttft + decode,
                strategy=job.strategy,
            )
        )
    return Trace(BLOCK, rows, 1_790_000_000.0)
