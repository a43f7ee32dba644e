"""Real routers on the simulation clock: what it waits for, and what is the same in each run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import routing_quality
from bench.fleet import router_states
from bench.fleet.client import Client
from bench.fleet.lockstep import Lockstep
from bench.fleet.router_states import RouterStates
from bench.fleet.serve import ServedFleet
from bench.rig import free_ports
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import LLAMA_70B

Page = Callable[[int], dict[str, Any]]  # by number of the query


def loads(in_flight: int, of_peers: int) -> dict[str, Any]:
    tokens = 500 * (in_flight + of_peers)
    worker = {"id": "w", "in_flight": in_flight, "peers_in_flight": of_peers}
    return {"workers": [{**worker, "in_flight_tokens": tokens}]}


def events(last: int) -> dict[str, Any]:
    return {"kv": {"sources": [{"endpoint": "tcp://w:1", "last": last}]}}


async def queried(pages: list[Page], wait: Callable[[RouterStates], Any]) -> tuple[int, list[int]]:
    """Return timeouts and the queries of each router, whose admin ports answer with `pages`."""
    queries = [0] * len(pages)

    def answer(number: int) -> Callable[[Any, Any], Any]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            queries[number] += 1
            body = json.dumps(pages[number](queries[number]))
            writer.write(f"HTTP/1.1 200 OK\r\n\r\n{body}".encode())
            writer.close()

        return serve

    ports = free_ports(len(pages))
    servers = [
        await asyncio.start_server(answer(number), "127.0.0.1", port)
        for number, port in enumerate(ports)
    ]
    states = RouterStates(ports)
    await wait(states)
    for server in servers:
        server.close()
    return states.late, queries


def test_routers_agree_once_each_has_the_load_of_all() -> None:
    pages: list[Page] = [lambda _: loads(2, 1), lambda query: loads(1, 2 if query > 3 else 0)]
    late, queries = asyncio.run(queried(pages, RouterStates.agree))
    assert (late, queries) == (0, [4, 4])


def test_events_are_read_once_every_router_has_the_last_batch() -> None:
    pages: list[Page] = [lambda _: events(7), lambda query: events(4 + query)]
    late, queries = asyncio.run(queried(pages, lambda states: states.read_events({"tcp://w:1": 7})))
    assert (late, queries) == (0, [3, 3])


def test_a_router_that_never_agrees_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_states, "_PATIENCE_S", 0.0)
    pages: list[Page] = [lambda _: loads(1, 0), lambda _: loads(0, 0)]
    late, _ = asyncio.run(queried(pages, RouterStates.agree))
    assert late == 1


class RecordedStates(RouterStates):
    def __init__(self, fleet: ServedFleet) -> None:
        super().__init__((1, 2))
        self.fleet = fleet
        self.agreed: list[float] = []

    async def agree(self) -> None:
        self.agreed.append(round(self.fleet.now, 3))


def test_the_clock_waits_for_the_exchange_of_what_is_older_than_a_batch() -> None:
    # A prompt of one block takes 0.0325 s.
    times = (0.001, 0.011, 0.503, 0.517, 1.0, 1.035)
    asks = [PlannedRequest(at, [number], 512, 1, number) for number, at in enumerate(times)]

    async def agreed() -> list[float]:
        (port,) = free_ports(1)
        async with ServedFleet(LLAMA_70B, [port], asks) as fleet:
            states = RecordedStates(fleet)
            await Lockstep(fleet, Client(port), 1e6, None, states).run(0)
        return states.agreed

    # Before the requests at 0.503 and 1.0, not at 0.517, which follows sooner than a batch; before
    # the step that ends at 1.033, later than the last batch before the request at 1.035.
    assert asyncio.run(agreed()) == [0.066, 0.568, 1.0]


def test_runs_have_the_same_worker_ids_and_hash_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """New prefixes are placed by both, through consistent hashing."""
    started: list[tuple[list[str], str]] = []

    class StartedRouter:
        def __init__(self, command: list[str], _port: int, _core: int) -> None:
            config = json.loads(Path(command[-1]).read_text())
            key = Path(command[-1]).parent / config["hash_key_file"]
            started.append(([worker["id"] for worker in config["workers"]], key.read_text()))

        def wait_until_serving(self) -> None: ...
        def __enter__(self) -> StartedRouter:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("bench.peers.Process", StartedRouter)
    monkeypatch.setattr(routing_quality, "until", lambda *_: None)
    case = routing_quality.Case("ours", "prefixaware", "8k", LLAMA_70B, 20.0, 1)
    for urls in (["http://127.0.0.1:1", "http://127.0.0.1:2"], ["http://a:3", "http://a:4"]):
        with routing_quality._ours(case, urls, 1, ()):
            pass
    assert started[0][0] == ["w0", "w1"]
    assert started[0] == started[1]
