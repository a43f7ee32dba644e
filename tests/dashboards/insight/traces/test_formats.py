"""Files in and out, in all formats."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fleet import agents
from bench.fleet.workloads import TRACE, shared_folder
from dashboards.insight.traces.blocks import resize_blocks
from dashboards.insight.traces.formats import FORMATS, read_trace, write_trace
from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest

FIELDS = [
    *("timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay"),
    *("id", "tool", "system", "requests", "subagents", "delay_s", "start_s"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats(allow_nan=False) | st.just("s"),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
    max_leaves=12,
)
ROW = st.fixed_dictionaries(
    {
        "timestamp": st.integers(0, 9000),
        "input_length": st.integers(0, 2000),
        "output_length": st.integers(0, 9),
        "hash_ids": st.lists(st.integers(0, 3), max_size=4),
    },
    optional={"session_id": st.sampled_from("ab"), "delay": st.integers(0, 9000)},
)
TURN = st.tuples(
    *(st.integers(0, 300), st.integers(0, 9), st.floats(0, 9), st.none() | st.floats(0, 9)),
    *(st.integers(0, 3), st.integers(0, 2)),
)
AGENT = st.fixed_dictionaries(
    {
        "tool": st.integers(0, 200),
        "system": st.integers(0, 200),
        "requests": st.lists(TURN.map(lambda turn: turn[: 5 + turn[1] % 2]), max_size=5),
    }
)


def dense(trace: Trace) -> list[Any]:
    ids: dict[int, int] = {}
    return [
        (one.prompt_tokens, one.output_tokens, [ids.setdefault(b, len(ids)) for b in one.blocks])
        for one in trace.requests
    ]


def test_published_conversations_pass_through_unchanged() -> None:
    with (shared_folder() / TRACE).open("rb") as file:
        lines = list(itertools.islice(file, 1500))
    rows = [json.loads(line) for line in lines]
    trace = read_trace("mooncake", lines)
    for name in ("mooncake", "dynamo"):
        written = list(write_trace(name, trace))
        assert [json.loads(line) for line in written] == rows
        assert read_trace(name, written) == trace


def test_larger_blocks_share_what_smaller_ones_do() -> None:
    with gzip.open(shared_folder() / agents.TRACE, "rb") as file:
        small = read_trace("agentic", list(itertools.islice(file, 8)))
    large = read_trace("mooncake", write_trace("mooncake", small))
    assert len(large.requests) == len(small.requests) > 100
    for a, b in itertools.pairwise(zip(small.requests, large.requests, strict=True)):
        fine = sum(x == y for x, y in zip(a[0].blocks, b[0].blocks, strict=False))
        coarse = sum(x == y for x, y in zip(a[1].blocks, b[1].blocks, strict=False))
        assert coarse in (fine // 8, -(-fine // 8))
        assert len(b[1].blocks) == -(-b[0].prompt_tokens // 512)
    assert dense(resize_blocks(resize_blocks(large, 64), 512)) == dense(large)


def test_a_partial_block_differs_from_the_whole_one() -> None:
    trace = Trace(
        64,
        [
            TraceRequest(0, 64 * 8, 1, tuple(range(8))),
            TraceRequest(1, 64 * 3, 1, (0, 1, 2)),
            TraceRequest(2, 64 * 9, 1, tuple(range(9))),
            TraceRequest(3, 64 * 8, 1, (0, 1, 2, 3, 4, 5, 6, 99)),
        ],
    )
    blocks = [request.blocks for request in resize_blocks(trace, 512).requests]
    assert blocks == [(0,), (1,), (0, 2), (3,)]


def test_sizes_that_do_not_divide_are_rejected() -> None:
    with pytest.raises(TraceError, match="choose a multiple"):
        write_trace("dynamo", Trace(64, []), 96)
    with pytest.raises(TraceError, match="Mooncake has blocks of 512 tokens"):
        read_trace("mooncake", [], 64)
    with pytest.raises(TraceError, match="from 1 to 65536"):
        read_trace("dynamo", [], -3)
    with pytest.raises(TraceError, match="Choose one of mooncake, dynamo, agentic"):
        read_trace("vllm", [])


def test_smaller_blocks_are_written_for_dynamo() -> None:
    trace = Trace(64, [TraceRequest(0, 130, 1, (5, 6, 7))])
    (row,) = map(json.loads, write_trace("dynamo", trace, 64))
    assert row["hash_ids"] == [5, 6, 7]
    (row,) = map(json.loads, write_trace("dynamo", trace, 32))
    assert row["hash_ids"] == [10, 11, 12, 13, 14]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(list(FORMATS)),
    st.lists(ROW, max_size=5) | st.lists(AGENT, max_size=3) | st.lists(JSON, max_size=3),
)
def test_any_lines_are_read_or_rejected_by_name(name: str, rows: list[Any]) -> None:
    try:
        trace = read_trace(name, [json.dumps(row) for row in rows])
    except TraceError as error:
        assert str(error).startswith("Line ")
    else:
        for other in FORMATS:
            written = read_trace(other, write_trace(other, trace))
            lengths = sorted((one.prompt_tokens, one.output_tokens) for one in trace.requests)
            again = [(one.prompt_tokens, one.output_tokens) for one in written.requests]
            assert sorted(again) == lengths
