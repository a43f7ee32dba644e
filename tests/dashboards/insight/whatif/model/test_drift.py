"""What other requests alone change."""

from __future__ import annotations

import statistics
from dataclasses import replace

from dashboards.insight.traces.blocks import resize_blocks
from dashboards.insight.whatif.model.analysis import Configuration
from dashboards.insight.whatif.model.drift import simulate_requests
from tests.dashboards.insight.whatif.recorded_traffic import TRUTH, WORKERS, recorded_traffic

PRESENT = Configuration("prefixaware", WORKERS, device_tokens=TRUTH.cache_tokens)
CONSTANTS = {
    "step_s": TRUTH.step_s,
    "prefill_s": TRUTH.prefill_s,
    "context_s": TRUTH.context_s,
    "decode_s": TRUTH.decode_s,
    "overhead_s": TRUTH.overhead_s,
}


def test_the_same_requests_are_answered_alike() -> None:
    before, after = simulate_requests(
        recorded_traffic(300), recorded_traffic(300), PRESENT, CONSTANTS
    )
    assert before == after


def test_requests_without_shared_prefixes_are_slower() -> None:
    trace = recorded_traffic(300)
    alone = [
        replace(one, blocks=tuple(block + 10_000_000 * number for block in one.blocks))
        for number, one in enumerate(trace.requests, 1)
    ]
    before, after = simulate_requests(trace, replace(trace, requests=alone), PRESENT, CONSTANTS)
    times = [statistics.median(one.ttft_s or 0.0 for one in part) for part in (before, after)]
    assert times[1] > 1.5 * times[0]
    cached = [sum(one.cached_tokens or 0 for one in part) for part in (before, after)]
    assert cached[0] > 100_000
    assert cached[1] == 0


def test_requests_keep_what_was_not_measured() -> None:
    trace = recorded_traffic(120)
    bare = [replace(one, ttft_s=None, cached_tokens=None) for one in trace.requests]
    _, after = simulate_requests(trace, replace(trace, requests=bare), PRESENT, CONSTANTS)
    assert after == bare


def test_traces_with_blocks_of_other_sizes_are_compared() -> None:
    trace = recorded_traffic(120)
    small = resize_blocks(trace, trace.block_tokens // 4)
    before, after = simulate_requests(trace, small, PRESENT, CONSTANTS)
    assert [one.ttft_s for one in before] == [one.ttft_s for one in after]


def test_prompts_that_share_since_the_change_are_replayed_apart() -> None:
    trace = recorded_traffic(120)
    keyed = [replace(one, key=f"k{number}") for number, one in enumerate(trace.requests)]
    after = replace(trace, requests=keyed, isolation="group")
    strict = replace(PRESENT, isolation="key")
    _, answered = simulate_requests(trace, after, strict, CONSTANTS)
    assert sum(one.cached_tokens or 0 for one in answered) == 0
