"""One configuration of an endpoint, and a trace replayed under it on the virtual clock. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dashboards.insight.traces.trace import Trace, TraceRequest
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.replay import WARM_UP, SimulatedRun, Step, simulate
from dashboards.insight.whatif.simulation.routers import RouterChooser, RouterSetting

MAX_BLOCKS = 48  # per prompt, on average; more are joined, which loses hits within a joined block
_SEED = 1


@dataclass(frozen=True)
class Scenario:
    """Configuration that is replayed. `rate`: factor of the recorded arrival rate. `hardware`:
    constants and memory of a worker. `candidate`: strategy of a canary, for the requests that it
    placed when they were recorded.
    """

    strategy: str
    replicas: int
    hardware: Hardware
    routers: int = 1
    rate: float = 1.0
    candidate: str = ""


@dataclass(frozen=True)
class PlannedTrace:
    """Requests of a trace, with blocks of `block_tokens`; `largest`: most tokens that one request
    holds in memory.
    """

    requests: list[PlannedRequest]
    block_tokens: int
    largest: int


def join_factor(trace: Trace) -> int:
    """Return how many of the trace's blocks to join into one of the model's."""
    blocks = count = 0
    for request in trace.requests:
        blocks += request.prompt_tokens // trace.block_tokens
        count += 1
    return max(1, math.ceil(blocks / max(count, 1) / MAX_BLOCKS))


def plan_trace(
    trace: Trace,
    tick_s: float = 0.0,
    factor: int = 0,
    scope: Callable[[TraceRequest], str] | None = None,
) -> PlannedTrace:
    """Join `factor` blocks each (0: as many as needed) and number them. Recorded times that are
    multiples of `tick_s` are spread within it. `scope`: blocks are shared within it only.
    """
    factor = factor or join_factor(trace)
    chance = random.Random(_SEED)
    names: dict[object, int] = {}
    sessions: dict[str, int] = {}
    size = trace.block_tokens * factor
    planned: list[PlannedRequest] = []
    largest = 0
    for request in trace.requests:
        whole = min(request.prompt_tokens // size, len(request.blocks) // factor)
        answer, prompt = max(request.output_tokens, 1), max(request.prompt_tokens, 1)
        blocks = request.blocks
        if request.answer_blocks:
            blocks += request.answer_blocks
        else:
            blocks = blocks[: whole * factor]
        # Equal last blocks stand for equal prompts up to there.
        joined = blocks[factor - 1 :: factor][: (prompt + answer) // size]
        named: Iterable[object] = joined
        if scope is not None:
            own = scope(request)
            named = ((own, block) for block in joined)
        chain = [names.setdefault(name, len(names)) for name in named]
        session = sessions.setdefault(request.session, len(sessions)) if request.session else -1
        largest = max(largest, prompt + answer)
        arrived_s = request.arrived_s + chance.random() * tick_s
        reported = -1 if request.cached_tokens is None else request.cached_tokens
        planned.append(
            PlannedRequest(
                *(arrived_s, chain[:whole], prompt, answer, session),
                reported=reported,
                strategy=request.strategy,
                answer_chain=chain[whole:],
            )
        )
    if tick_s:
        times = sorted(request.at for request in planned)
        planned = [
            replace(request, at=time_s) for request, time_s in zip(planned, times, strict=True)
        ]
    return PlannedTrace(planned, size, largest)


def _compress(requests: list[PlannedRequest], rate: float) -> list[PlannedRequest]:
    """Return the requests at `rate` times their rate, from time 0 on."""
    start = requests[0].at if requests else 0.0
    if rate == 1.0 and not start:
        return requests
    return [replace(request, at=(request.at - start) / rate) for request in requests]


def run_scenario(
    scenario: Scenario, planned: PlannedTrace, warm_up: float = WARM_UP, step: Step | None = None
) -> SimulatedRun:
    """Replay the requests; `step` may raise to cancel."""
    size = planned.block_tokens
    # The largest request must fit a worker's memory, or it would wait for ever.
    memory = max(scenario.hardware.cache_tokens, planned.largest + 2 * size)
    hardware = replace(scenario.hardware, block_tokens=size, cache_tokens=memory)
    setting = RouterSetting(
        scenario.strategy,
        scenario.routers,
        shared=scenario.routers > 1,
        candidate=scenario.candidate,
    )
    chooser = RouterChooser(setting, scenario.replicas, hardware, _SEED)
    requests = _compress(planned.requests, scenario.rate)
    return simulate(requests, hardware, scenario.replicas, chooser, warm_up, step)
