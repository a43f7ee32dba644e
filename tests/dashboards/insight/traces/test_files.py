"""Stored form of a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboards.insight.traces.files import pack, unpack
from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest

REQUESTS = st.builds(
    TraceRequest,
    arrived_s=st.floats(0, 1e6),
    prompt_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    blocks=st.lists(st.integers(0, 3), max_size=9).map(tuple),
    session=st.sampled_from(["", "s"]),
    ttft_s=st.none() | st.floats(0, 9),
    tiers=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(REQUESTS, max_size=12))
def test_any_trace_is_stored_without_loss(requests: list[TraceRequest]) -> None:
    trace = Trace(64, requests, 1e9)
    found = unpack(pack(trace))
    assert replace(found, requests=list(found.requests)) == trace


@pytest.mark.parametrize("data", [b"", b"nonsense", pack(Trace(64, []))[:-9]])
def test_damaged_data_is_reported(data: bytes) -> None:
    with pytest.raises(TraceError, match="Import it again"):
        unpack(data)
