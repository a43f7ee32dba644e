"""Volume: two thousand streams, rapid reconfiguration, and a killed router.

Every stream ends with its checksum, which reveals lost, duplicated or mixed bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
from pathlib import Path
from typing import Any

from routing.engine.config import Address
from tests.routing.engine.harness import Client, chat, metric, post, router, until, workers
from tests.routing.engine.test_server import program
from tests.routing.engine.test_server_changes import rewrite
from tests.support.fake_worker import Conversation, FakeWorker

STREAMS = 2000


class Gate:
    """A worker's script: an event of its own to each stream, then a wait for all of them."""

    def __init__(self, streams: int) -> None:
        self.streams = streams
        self.begun = 0
        self.open = asyncio.Event()

    async def __call__(self, talk: Conversation) -> None:
        await talk.stream_head()
        name = json.loads(talk.request.body)["messages"][0]["content"].encode()
        first = b"data: " + name + b"\n\n"
        await talk.chunk(first)
        self.begun += 1
        if self.begun == self.streams:
            self.open.set()
        await self.open.wait()
        digest = hashlib.sha256(first)
        draw = random.Random(name)
        for _ in range(6):
            piece = b"data: " + draw.randbytes(draw.randrange(1, 300)).hex().encode() + b"\n\n"
            digest.update(piece)
            await talk.chunk(piece)
        await talk.chunk(b"data: " + digest.hexdigest().encode() + b"\n\n")
        await talk.stream_end()


def is_right(name: str, body: bytes) -> bool:
    events, _, last = body.removesuffix(b"\n\n").rpartition(b"\n\n")
    right = last == b"data: " + hashlib.sha256(events + b"\n\n").hexdigest().encode()
    return right and body.startswith(b"data: " + name.encode() + b"\n\n")


async def stream(address: Address | None, name: str) -> str:
    async with await Client.to(address) as client:
        await client.send(post(chat(name, stream=True)))
        try:
            answer = await asyncio.wait_for(client.response(), 100)
        except (asyncio.IncompleteReadError, ConnectionError):
            return "broken"
        assert answer.status == 200
        return "right" if is_right(name, answer.body) else "wrong"


async def test_two_thousand_concurrent_streams_are_correct() -> None:
    """vllm-project/production-stack#448: the router fell over and restarted above about a
    thousand users at once."""
    limits = {"connect_timeout_s": 60}  # router, workers and users share one busy loop here
    async with FakeWorker() as one, FakeWorker() as two:
        async with router(one, two, limits=limits, health={"interval_s": 60}) as server:
            one.script = two.script = gate = Gate(STREAMS)
            names = [f"stream {index}" for index in range(STREAMS)]
            outcomes = await asyncio.gather(*(stream(server.listen, name) for name in names))
            assert outcomes.count("right") == STREAMS
            assert gate.begun == STREAMS, "all were under way at the same time"
            states = server.router.table.workers.values()
            assert [(worker.in_flight, worker.load) for worker in states] == [(0, 0), (0, 0)]
            await until(lambda: not server.router.clients)


async def test_killed_router_loses_only_its_own_streams() -> None:
    """The others are unaffected, and the worker stops abandoned requests."""
    async with FakeWorker() as worker:
        worker.script = gate = Gate(80 + 1)  # the last one comes after the kill
        flags = ("--listen", "127.0.0.1:0", "--worker", worker.url)
        async with program(*flags) as (doomed, theirs), program(*flags) as (other, ours):
            await doomed.line("worker_up")
            await other.line("worker_up")
            lost = [asyncio.create_task(stream(theirs, f"lost {n}")) for n in range(40)]
            kept = [asyncio.create_task(stream(ours, f"kept {n}")) for n in range(40)]
            await until(lambda: gate.begun == 80, "all are under way")
            doomed.process.kill()
            assert set(await asyncio.gather(*lost)) == {"broken"}
            await worker.until(lambda: len(worker.cancelled) == 40)
            assert await stream(ours, "last") == "right"
            assert set(await asyncio.gather(*kept)) == {"right"}
            assert len(worker.cancelled) == 40


def configurations(a: FakeWorker, b: FakeWorker, steady: FakeWorker) -> list[dict[str, Any]]:
    """Changes of everything that can change; one worker stays throughout."""
    w0, w1, w2 = workers(steady, a, b)
    return [
        {"workers": [w0, w1], "strategy": "session"},
        {"workers": [w0, w2], "strategy": "roundrobin"},
        {"workers": [w0, {**w1, "draining": True}, w2], "strategy": "prefixaware"},
        {"workers": [w2, w1, w0], "prefix_block_bytes": 64},
        {"limits": {"body_bytes": 1_000_000}, "retry": {"attempts": 3}},
        {"admission": {"max_in_flight": 5}, "decisions": {"keep": 50}},
        {"admission": {}, "prefix_memory_blocks": 100},
        {"workers": [w0], "health": {"interval_s": 0.06}},
    ]


async def test_rapid_reconfiguration_loses_no_request(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    changes = itertools.count()
    storm = 200

    async with FakeWorker() as steady, FakeWorker() as a, FakeWorker() as b:
        async with router(steady, a, b, path=path) as server:
            for fake in (steady, a, b):
                fake.script = Gate(0)
                fake.script.open.set()
            cases = configurations(a, b, steady)
            done = asyncio.Event()
            total = 0

            async def change() -> None:
                for number in changes:
                    if number == storm:
                        break
                    rewrite(path, server, **cases[number % len(cases)])
                    await asyncio.sleep(0.002)
                    await until(lambda number=number: total > number, "requests in between")
                done.set()

            async def asking(number: int) -> None:
                nonlocal total
                while not done.is_set():
                    assert await stream(server.listen, f"{number} {total}") == "right"
                    total += 1

            await asyncio.gather(change(), *(asking(n) for n in range(12)))
            reloads = "emberline_router_config_reloads_total"
            assert await metric(server, reloads, result="ok") == storm
            assert await metric(server, "emberline_router_requests_total", code="200") == total
