"""Traces in NVIDIA Dynamo's format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboards.insight.traces.dynamo import read_dynamo, write_dynamo
from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest

# As in Dynamo's documentation (docs/benchmarks/dynosim-runs.md).
DOCUMENTED = """\
{"session_id":"session-a","timestamp":1000,"input_length":2048,"output_length":128,"hash_ids":[1,2,3,4]}
{"session_id":"session-a","delay_ms":50,"input_length":2560,"output_length":128,"hash_ids":[1,2,3,4,5]}
{"session_id":"session-b","timestamp":1010,"input_length":1024,"output_length":64,"hash_ids":[9,10]}
{"session_id":"session-b","timestamp":1060,"input_length":1536,"output_length":64,"hash_ids":[9,10,11]}
{"created_time":0,"input_tokens":6755,"output_tokens":500,"hash_ids":[0,1,2,3]}
"""


def rows(trace: Trace) -> list[dict[str, Any]]:
    return [json.loads(line) for line in write_dynamo(trace)]


def test_documented_examples_are_read() -> None:
    trace = read_dynamo(DOCUMENTED.splitlines(), 512)
    assert [(one.session, round(one.arrived_s, 3)) for one in trace.requests] == [
        ("", 0.0),
        ("session-a", 1.0),
        ("session-b", 1.01),
        ("session-b", 1.06),
        ("session-a", 4.098),  # 50 ms after a nominal answer of 3.048 s
    ]
    assert trace.requests[0].prompt_tokens == 6755
    assert trace.requests[4].blocks == (1, 2, 3, 4, 5)


def test_turns_wait_for_the_answer_before() -> None:
    def request(at: float, session: str = "s", **values: Any) -> TraceRequest:
        return TraceRequest(at, 10, 2, (1,), session, duration_s=2.0, **values)

    trace = Trace(512, [request(1), request(2), request(5.5), request(6, "")])
    first, parallel, second, single = rows(trace)
    assert (first["session_id"], first["timestamp"]) == ("s", 1000)
    assert (second["session_id"], second["delay"], "timestamp" in second) == ("s", 2500, False)
    for row, at in ((parallel, 2000), (single, 6000)):
        assert "session_id" not in row
        assert row["timestamp"] == at
    assert first["hash_ids"] == [1]


def test_sessions_are_written_and_read_alike() -> None:
    trace = read_dynamo(DOCUMENTED.splitlines(), 512)
    again = read_dynamo(write_dynamo(trace), 512)
    shown = [(one.session, one.blocks, one.prompt_tokens) for one in trace.requests]
    assert sorted(shown) == sorted(
        # The second request of session-b came during the first answer: it is an independent one.
        ("session-b", one.blocks, one.prompt_tokens)
        if one.blocks == (9, 10, 11)
        else (one.session, one.blocks, one.prompt_tokens)
        for one in again.requests
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"session_id": 3}, "Line 1: session_id is 3; a text of up to 200"),
        ({"timestamp": None}, "Line 1: timestamp is None; a number"),
        ({"input_length": 3}, "Line 1: hash_ids has 2 blocks of 512 tokens, but the prompt of 3"),
        ({"output_length": True}, "Line 1: output_length is True"),
        ({"output_length": 1e30}, "Line 1: output_length is 1e+30; a number of at least 0"),
        ({"hash_ids": [1.5]}, "Line 1: hash_ids is no list of integers"),
    ],
)
def test_malformed_rows_are_named(changes: dict[str, Any], message: str) -> None:
    row = {"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [1, 2]}
    with pytest.raises(TraceError) as error:
        read_dynamo([json.dumps({**row, **changes})], 512)
    assert str(error.value).startswith(message)
