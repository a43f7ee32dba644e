"""One configuration of an endpoint, and a trace replayed under it on the virtual clock. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from routing.traces.trace import Trace
from routing.whatif.simulation.arrivals import PlannedRequest
from routing.whatif.simulation.hardware import Hardware
from routing.whatif.simulation.replay import WARM_UP, SimulatedRun, Step, simulate
from routing.whatif.simulation.routers import RouterChooser, RouterSetting

MAX_BLOCKS = 48  # per prompt, on average; more are joined, which loses hits within a joined block
_SEED = 1


@dataclass(frozen=True)
class Scenario:
    """`rate`: factor of the recorded arrival rate. `hardware`: constants and memory of a worker."""

    strategy: str
    replicas: int
    hardware: Hardware
    routers: int = 1
    rate: float = 1.0


def join_factor(trace: Trace) -> int:
    """Return how many of the trace's blocks to join into one of the model's."""
    blocks = sum(request.prompt_tokens // trace.block_tokens for request in trace.requests)
    return max(1, math.ceil(blocks / max(len(trace.requests), 1) / MAX_BLOCKS))


def plan_requests(
    trace: Trace, factor: int, rate: float = 1.0, tick_s: float = 0.0
) -> list[PlannedRequest]:
    """Return the requests with blocks of `factor` times the trace's and arrivals at `rate` times
    the recorded rate. Recorded times that are multiples of `tick_s` are spread within it.
    """
    chance = random.Random(_SEED)
    names: dict[int, int] = {}
    sessions: dict[str, int] = {}
    size = trace.block_tokens * factor
    requests = trace.requests
    times = sorted(request.arrived_s + chance.random() * tick_s for request in requests)
    start = times[0] if times else 0.0
    planned = []
    for at, request in zip(times, requests, strict=True):
        whole = min(request.prompt_tokens // size, len(request.blocks) // factor)
        # Equal last blocks stand for equal prompts up to there.
        joined = request.blocks[factor - 1 :: factor][:whole]
        chain = [names.setdefault(block, len(names)) for block in joined]
        session = sessions.setdefault(request.session, len(sessions)) if request.session else -1
        answer = max(request.output_tokens, 1)
        prompt = max(request.prompt_tokens, 1)
        planned.append(PlannedRequest((at - start) / rate, chain, prompt, answer, session))
    return planned


def run_scenario(
    scenario: Scenario,
    trace: Trace,
    warm_up: float = WARM_UP,
    step: Step | None = None,
    tick_s: float = 0.0,
) -> SimulatedRun:
    """Replay the trace; `step` may raise to cancel."""
    factor = join_factor(trace)
    requests = plan_requests(trace, factor, scenario.rate, tick_s)
    hardware = replace(scenario.hardware, block_tokens=trace.block_tokens * factor)
    setting = RouterSetting(scenario.strategy, scenario.routers, shared=scenario.routers > 1)
    chooser = RouterChooser(setting, scenario.replicas, hardware, _SEED)
    return simulate(requests, hardware, scenario.replicas, chooser, warm_up, step)


def largest_request(trace: Trace) -> int:
    """Return the most tokens that one request holds in a worker's memory."""
    return max((r.prompt_tokens + r.output_tokens for r in trace.requests), default=0)


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the quantile `part` of ascending values."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
