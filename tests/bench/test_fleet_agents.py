"""Closed-loop workloads: recorded agent sessions and the order of their requests."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from pathlib import Path

import pytest

from bench import routing_quality
from bench.fleet import agents
from bench.fleet.oracle import Oracle
from bench.fleet.serve import ServedFleet
from bench.rig import free_ports
from dashboards.insight.whatif.simulation import replay
from dashboards.insight.whatif.simulation.arrivals import Arrivals, PlannedRequest
from dashboards.insight.whatif.simulation.hardware import LLAMA_70B

SESSION = {
    "id": "trace_0002",
    "tool": 1024,
    "system": 512,
    "requests": [
        [4096, 100, 0.0, 1.0, 0],
        [5120, 100, 500.0, 1.0, 64],
        {
            "subagents": [
                {"tool": 1024, "system": 64, "delay_s": 0.5, "requests": [[2048, 10, 0, 1, 0]]},
                {"tool": 1024, "system": 64, "delay_s": 0.7, "requests": [[2048, 10, 0, 1, 0]]},
            ]
        },
        [6144, 100, 4.0, 1.0, 80],
        [200_000, 100, 4.0, 1.0, 80],
    ],
}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    file = tmp_path / "sessions.jsonl.gz"
    with gzip.open(file, "wt") as out:
        for number in range(2):
            out.write(json.dumps({**SESSION, "system": 512 + number * 512}) + "\n")
    return file


def test_turns_wait_for_the_answers_before_them(recorded: Path) -> None:
    (turns,) = agents.sessions(recorded, 0)
    assert [turn.after for turn in turns] == [(), (0,), (1,), (1,), (2, 3)]
    assert [turn.think_s for turn in turns] == [0.0, agents.MOST_THINK_S, 0.5, 0.7, 4.0]
    assert [len(turn.blocks) for turn in turns] == [8, 10, 4, 4, 12]
    assert turns[4].blocks[:10] == turns[1].blocks
    assert turns[1].blocks[:8] == turns[0].blocks
    assert turns[2].blocks[:2] == turns[0].blocks[:2] == turns[3].blocks[:2]  # the same tools
    assert turns[2].blocks[2] not in (turns[0].blocks[2], turns[3].blocks[3])


def test_halves_have_different_sessions(recorded: Path) -> None:
    assert agents.sessions(recorded, 0) != agents.sessions(recorded, 1)
    assert len(agents.sessions(recorded, 2)) == 2


def test_sessions_are_under_way_from_the_start(recorded: Path) -> None:
    asks = agents.running(recorded, 5.0, 1, 0)
    assert len(asks) == pytest.approx(agents.REQUESTS, rel=0.1)
    assert all(before < number for number, ask in enumerate(asks) for before in ask.after)
    first = [ask for ask in asks[:100] if not ask.after]
    assert {len(ask.chain) for ask in first} > {8}  # some began before
    names = {ask.session: set(ask.chain[3:]) for ask in asks if ask.prompt_tokens == 4096}
    assert len(set.union(*names.values())) == sum(map(len, names.values()))


def test_a_request_arrives_when_all_before_it_have_ended() -> None:
    asks = [
        PlannedRequest(1.0, [], 1, 1, 0),
        PlannedRequest(2.0, [], 1, 1, 0),
        PlannedRequest(0.5, [], 1, 1, 0, after=(0, 1)),
    ]
    arrivals = Arrivals(asks)
    assert [arrivals.take(), arrivals.take()] == [(1.0, 0), (2.0, 1)]
    arrivals.ended(1, 3.0)
    assert arrivals.next_at == math.inf
    arrivals.ended(0, 7.0)
    assert arrivals.take() == (7.5, 2)


def test_the_same_requests_are_counted_behind_sockets_and_in_virtual_time() -> None:
    # Turns that wait for an answer arrive after requests of higher numbers.
    asks = [PlannedRequest(0.0, range(40), 20_480, 10, 0)]
    asks += [PlannedRequest(30.0, range(41), 20_992, 10, 0, (0,))]
    asks += [
        PlannedRequest(number, range(100 * number, 100 * number + number), 512 * number, 5, number)
        for number in range(2, 14)
    ]

    async def behind_sockets() -> replay.FleetResult:
        (port,) = free_ports(1)
        case = routing_quality.Case("", "", "agents", LLAMA_70B, 1e6, 1)
        async with ServedFleet(LLAMA_70B, [port], asks) as fleet:
            outcome = await routing_quality._measure(case, fleet, port, None)
        assert (outcome.lost, outcome.held, outcome.errors) == (0, 0, {})
        return outcome.result

    virtual = replay.run(asks, LLAMA_70B, 1, Oracle())
    measured = asyncio.run(behind_sockets())
    assert (measured.ttft_s, measured.hit_rate) == (virtual.ttft_s, virtual.hit_rate)
