"""Traces in Mooncake's format."""

from __future__ import annotations

import pytest

from bench.fleet.workloads import TRACE, shared_folder
from dashboards.insight.traces.trace import (
    Trace,
    TraceError,
    TraceRequest,
    read_mooncake,
    write_mooncake,
)

LINE = '{"timestamp": 1500, "input_length": 700, "output_length": 9, "hash_ids": [0, 7]}'


def test_requests_are_read_in_order_of_arrival_and_written_alike() -> None:
    trace = read_mooncake([LINE, "", LINE.replace("1500", "20"), LINE.encode()])
    assert [request.arrived_s for request in trace.requests] == [0.02, 1.5, 1.5]
    assert trace.requests[1] == TraceRequest(1.5, 700, 9, (0, 7))
    assert read_mooncake(write_mooncake(trace)) == trace


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[", "Line 1 is not JSON"),
        ("[]", "Line 1 is no JSON object."),
        (LINE.replace("700", '"700"'), "Line 1: input_length is '700'; a number"),
        (LINE.replace("9,", "-9,"), "Line 1: output_length is -9; a number"),
        (LINE.replace("[0, 7]", "[0, true]"), "Line 1: hash_ids is no list of integers."),
    ],
)
def test_a_malformed_line_is_named(line: str, message: str) -> None:
    with pytest.raises(TraceError) as error:
        read_mooncake([line])
    assert str(error.value).startswith(message)


def test_other_block_sizes_are_not_written() -> None:
    with pytest.raises(TraceError, match="64 tokens; the format has blocks of 512"):
        list(write_mooncake(Trace(64, [])))


def test_published_conversations_are_read() -> None:
    with (shared_folder() / TRACE).open("rb") as file:
        trace = read_mooncake(file)
    assert len(trace.requests) == 6000
    assert trace.requests[0].prompt_tokens == 6758
