"""What other requests alone change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from routing.whatif.model.analysis import Configuration
from routing.whatif.model.drift import predict_drift
from tests.routing.whatif.recorded_traffic import TRUTH, WORKERS, recorded_traffic

PRESENT = Configuration("prefixaware", WORKERS, device_tokens=TRUTH.cache_tokens)
CONSTANTS = {
    "step_s": TRUTH.step_s,
    "prefill_s": TRUTH.prefill_s,
    "context_s": TRUTH.context_s,
    "decode_s": TRUTH.decode_s,
    "overhead_s": TRUTH.overhead_s,
}


def test_the_same_requests_change_nothing() -> None:
    found = predict_drift(recorded_traffic(300), recorded_traffic(300), PRESENT, CONSTANTS)
    assert found["ttft_p90_s"] == found["hit_rate"] == 0


def test_requests_without_shared_prefixes_are_slower() -> None:
    trace = recorded_traffic(300)
    alone = [
        replace(one, blocks=tuple(block + 10_000_000 * number for block in one.blocks))
        for number, one in enumerate(trace.requests, 1)
    ]
    found = predict_drift(trace, replace(trace, requests=alone), PRESENT, CONSTANTS)
    assert found["ttft_p50_s"] > 0.5
    assert found["hit_rate"] == pytest.approx(-0.6, abs=0.15)
