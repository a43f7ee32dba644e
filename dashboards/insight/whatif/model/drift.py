"""What other requests alone change: two traces replayed under one configuration. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from dashboards.insight.traces.trace import Trace, TraceRequest
from dashboards.insight.whatif.model.analysis import Configuration
from dashboards.insight.whatif.model.calibration import Constants
from dashboards.insight.whatif.model.isolation import scope_of
from dashboards.insight.whatif.model.scenario import join_factor, plan_trace, run_scenario


def simulate_requests(
    before: Trace, after: Trace, configuration: Configuration, constants: Constants
) -> tuple[list[TraceRequest], list[TraceRequest]]:
    """Return the requests of both with the simulated TTFT and cached tokens instead of the recorded
    ones, where those are known.
    """
    scenario = configuration.scenario(constants)
    largest = max(before.block_tokens, after.block_tokens)
    joined = (side.block_tokens * join_factor(side) for side in (before, after))
    tokens = largest * math.ceil(max(joined) / largest)
    requests = []
    scope = partial(scope_of, isolation=configuration.isolation)
    for trace in (before, after):
        factor = tokens // trace.block_tokens
        run = run_scenario(scenario, plan_trace(trace, factor=factor, scope=scope))
        jobs = sorted(run.jobs, key=lambda job: job.tag)
        requests.append(
            [
                replace(
                    request,
                    ttft_s=None
                    if request.ttft_s is None
                    else job.first_at - job.arrived + scenario.hardware.overhead_s,
                    cached_tokens=None if request.cached_tokens is None else job.cached,
                )
                for request, job in zip(trace.requests, jobs, strict=True)
            ]
        )
    return requests[0], requests[1]
