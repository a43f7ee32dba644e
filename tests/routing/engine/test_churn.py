"""Ten thousand workers come and go under traffic, and leave nothing behind.

Live objects, metrics, memories and allocated blocks are counted, not guessed from resident size.
The router and its connections are the real ones; transports only remember, so that ten thousand
workers take seconds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bench.fuzz.wires import InstantPool, Wire
from routing.engine.config import parse
from routing.engine.front import ClientConnection
from routing.engine.logs import Log
from routing.engine.router import Router

KINDS = (
    "Worker", "InstantPool", "Pool", "WorkerConnection", "ClientConnection", "Exchange", "Charge",
    "Circuit", "Decision", "Number", "Histogram", "Ticket", "Caller", "ChunkedBody", "RequestHead",
    "ResponseHead", "WorkerConfig", "Config",
)  # fmt: skip
STANDING = 4
SPANS = 5  # a leak grows in most; a thread of another test that ends or begins, in one
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class _Loop:
    def call_later(self, *_: object) -> None:
        return None


class Churned:
    """A router with a few workers, of which one after the other is replaced by a new one."""

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.born = 0
        self.alive: list[int] = []
        self.asked = 0
        self.answered = 0
        self.router = Router(self.config(), Log("error"))
        self.pools: dict[str, InstantPool] = {}
        for _ in range(STANDING):
            self.join()
        self.client = ClientConnection(self.router)
        self.out = Wire()
        self.client.connection_made(self.out)  # type: ignore[arg-type]  # acts like a transport

    def config(self) -> Any:
        data = {
            "listen": "127.0.0.1:0",
            "strategy": self.strategy,
            "session_key": "body:user",
            "prefix_memory_blocks": 200,
            "decisions": {"keep": 100},
            "admission": {"max_in_flight": 50},
            "access_log": {"sample": 0},
            "workers": [
                {
                    "id": f"w{n}",
                    "url": f"http://10.0.{n // 250 % 250}.{n % 250}:8000",
                    "cache_tokens": 9999,
                }
                for n in self.alive
            ],
        }
        return parse(data, Path())

    def join(self) -> None:
        """One more worker; the oldest goes when there are too many."""
        self.born += 1
        self.alive.append(self.born)
        if len(self.alive) > STANDING:
            self.alive.pop(0)
        self.router.reconfigure(self.config())
        table = self.router.table
        for worker in table.workers.values():
            if worker.id not in self.pools:
                pool = InstantPool(worker.address, 1.0)
                pool.tasks, pool.connections = [], []
                self.pools[worker.id] = worker.pool = pool
                table.probed(worker, "", False, 3)
                if self.born % 20 == 0:  # its gauges get children when somebody looks
                    self.router.metrics.registry.render()
        for gone in set(self.pools) - set(table.workers):
            pool = self.pools.pop(gone)
            idle = [one for one in pool.connections if one._receiver is None]
            assert all(one.transport.closing for one in idle), "what nobody uses is closed"
            for connection in pool.connections:  # of a worker that is gone: reset by its end
                connection.transport.close()
                connection.connection_lost(ConnectionResetError())

    def ask(self) -> None:
        """One request, to its connection; not yet answered."""
        self.asked += 1
        text = f"{self.asked:08d} a prompt of its own " * 20
        body = json.dumps({"prompt": text, "user": f"u{self.asked}"}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"
        self.client.data_received(head % len(body) + body)
        self.connect()

    def connect(self) -> None:
        for pool in self.pools.values():
            tasks, pool.tasks = pool.tasks, []
            for task in tasks:
                if task.run is not None:
                    task.run()

    def answer(self) -> None:
        """Every request, also one which was sent again to another worker."""
        self.connect()
        for pool in list(self.pools.values()):
            for connection in list(pool.connections):
                if connection._receiver is not None:
                    connection.data_received(ANSWER)
                if connection.transport.closing:
                    pool.connections.remove(connection)
                    connection.connection_lost(None)

    def turn(self) -> None:
        """Two requests, the second of which meets the end of a worker while it runs."""
        self.ask()
        self.answer()
        self.ask()
        self.join()
        self.answer()
        out = self.out.written
        self.answered += out.count(b"HTTP/1.1 200 OK")
        assert out.count(b"HTTP/1.1 ") == 2, "each request has its answer"
        out.clear()

    def counts(self) -> Counter[str]:
        metric_lines = self.router.metrics.registry.render().count(b"\n")
        gc.collect()
        names = (type(item).__name__ for item in gc.get_objects())
        found = Counter(name for name in names if name in KINDS)
        found["metric lines"] = metric_lines
        found["remembered of workers"] = len(self.router.policy.sizes())
        found["allocated blocks"] = sys.getallocatedblocks()
        return found


@pytest.mark.parametrize("strategy", ["prefixaware", "session", "roundrobin"])
def test_ten_thousand_workers_leave_nothing_behind(strategy: str) -> None:
    """smg-project/smg PR#2132: the prefix trees of removed workers were never freed."""
    turns = 10_000 if strategy == "prefixaware" else 1000
    asyncio._set_running_loop(_Loop())  # type: ignore[arg-type]  # time stands still
    try:
        churned = Churned(strategy)
        for _ in range(500):  # until everything bounded is full
            churned.turn()
        before = churned.counts()
        blocks = [before.pop("allocated blocks")]
        for _ in range(SPANS):
            for _ in range(turns // SPANS):
                churned.turn()
            after = churned.counts()
            blocks.append(after.pop("allocated blocks"))
    finally:
        asyncio._set_running_loop(None)
    grown = [later - earlier for earlier, later in pairwise(blocks)]
    assert median(grown) < turns / SPANS / 4, f"less than one block for four workers: {grown}"
    for kind in ("WorkerConnection", "remembered of workers"):  # none to one for each worker
        assert after.pop(kind, 0) <= STANDING
        before.pop(kind, None)
    assert after == before
    assert churned.answered > churned.asked / 2
    table = churned.router.table
    assert len(table.workers) == STANDING
    assert sum(worker.in_flight for worker in table.workers.values()) == 0
