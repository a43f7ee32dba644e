"""Sessions of agents: read, written, and the recorded sessions both ways."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import pytest

from bench.fleet.agents import TRACE
from bench.fleet.workloads import shared_folder
from dashboards.insight.traces.agentic import read_agentic, write_agentic
from dashboards.insight.traces.trace import Trace, TraceError, TraceRequest

SESSION: dict[str, Any] = {
    "id": "a",
    "tool": 128,
    "system": 64,
    "requests": [
        [320, 10, 0.0, 2.0, 0],
        {
            "subagents": [
                {"tool": 64, "system": 0, "delay_s": 1.0, "requests": [[100, 5, 0, 3.0, 0]]}
            ]
        },
        [400, 20, 4.0, None, 5],
        [256, 20, 1.0, 1.0, 3, 0],
    ],
}


def read(*sessions: Any) -> Trace:
    return read_agentic(json.dumps(session) for session in sessions)


def shape(trace: Trace) -> list[tuple[Any, ...]]:
    """A trace with ids in order of first use."""
    ids: dict[int, int] = {}
    return [
        (
            one.prompt_tokens,
            one.output_tokens,
            one.session,
            tuple(ids.setdefault(block, len(ids)) for block in one.blocks),
        )
        for one in trace.requests
    ]


def test_times_and_blocks_follow_the_session() -> None:
    other = {**SESSION, "id": "b", "system": 0, "requests": [[320, 1, 0, 1.0, 0]]}
    first, alone, child, second, third = read(SESSION, other).requests
    assert [one.session for one in (first, alone, child, second)] == ["a", "b", "a/1.0", "a"]
    assert alone.arrived_s == 2.0
    assert child.arrived_s == 3.0  # one second after the first answer
    assert second.arrived_s == 10.0  # four seconds after the subagent
    assert third.arrived_s == pytest.approx(10 + 1 + 0.016 * 20 + 1)  # a nominal answer
    assert [len(one.blocks) for one in (first, child, second, third)] == [5, 2, 7, 4]
    assert second.blocks[:5] == first.blocks
    assert third.blocks[:3] == first.blocks[:3]
    assert third.blocks[3] not in first.blocks
    assert alone.blocks[:2] == first.blocks[:2]  # the same tools
    assert alone.blocks[2] != first.blocks[2]


def test_recorded_sessions_are_written_and_read_alike() -> None:
    with gzip.open(shared_folder() / TRACE, "rb") as file:
        lines = list(itertools.islice(file, 0, 342, 38))
    trace = read_agentic(lines)
    assert len(trace.requests) > 400
    again = read_agentic(write_agentic(trace))
    assert shape(again) == shape(trace)
    times = [one.arrived_s for one in trace.requests]
    assert [one.arrived_s for one in again.requests] == pytest.approx(times, abs=0.01)
    rows = [row for line in lines for row in json.loads(line)["requests"] if type(row) is list]
    found = [row for line in write_agentic(trace) for row in json.loads(line)["requests"]]
    kept = sum(row[4] for row in found)
    assert kept >= sum(row[4] for row in rows)  # with subagents, which are sessions of their own
    assert len(found) == len(trace.requests)


def test_requests_without_a_session_continue_a_prompt() -> None:
    requests = [
        TraceRequest(0, 128, 1, (0, 1), duration_s=1),
        TraceRequest(1, 64, 1, (9,), duration_s=1),
        TraceRequest(5, 200, 1, (0, 1, 2, 3), duration_s=1),
    ]
    one, other = (json.loads(line) for line in write_agentic(Trace(64, requests)))
    assert one["requests"] == [[128, 1, 0.0, 1, 0], [200, 1, 4.0, 1, 2]]
    assert other["requests"] == [[64, 1, 0.0, 1, 0]]


def with_row(row: Any) -> dict[str, Any]:
    return {"tool": 0, "system": 0, "requests": [[64, 1, 0, 1, 0], row]}


def test_deep_subagents_are_rejected() -> None:
    agent: dict[str, Any] = {"requests": [], "delay_s": 0}
    for _ in range(30):
        agent = {"requests": [{"subagents": [agent]}], "delay_s": 0}
    with pytest.raises(TraceError, match="more than 8 levels"):
        read(agent)


@pytest.mark.parametrize(
    ("session", "message"),
    [
        ({}, "Line 1: requests is no list"),
        ({"id": 3, "requests": []}, "Line 1: id is no text"),
        ({"requests": [[64, 1, 0, 1, 0]]}, "Line 1: tool is missing; a number"),
        (with_row([64, 1, 0, 1]), r"Line 1: requests\[1\] is no list \[in"),
        (with_row([64, 1, "x", 1, 0]), r"Line 1: requests\[1\].think_s is 'x'; a number"),
        (with_row([64, -1, 0, 1, 0]), r"Line 1: requests\[1\].out is -1; a number"),
        (with_row([256, 1, 0, 1, 3]), r"Line 1: requests\[1\] has keep 3, more than"),
        (with_row([64, 1, 0, 1, 1, 7]), r"Line 1: requests\[1\] keeps blocks of no earlier"),
        (with_row({"subagents": 3}), r"Line 1: requests\[1\] has no list subagents"),
        (with_row({"subagents": [3]}), r"subagents\[0\] is no JSON object"),
        (with_row({"subagents": [{"requests": []}]}), r"subagents\[0\].delay_s is missing"),
    ],
)
def test_malformed_sessions_are_named(session: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(session)


def test_other_block_sizes_are_not_written() -> None:
    with pytest.raises(TraceError, match="512 tokens; the format has blocks of 64"):
        list(write_agentic(Trace(512, [])))
