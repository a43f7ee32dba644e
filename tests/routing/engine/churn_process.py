"""A router whose workers come and go under traffic, in a process of its own; prints its counts.

In a process of its own, because allocated blocks are the whole process's: threads of other tests
would be counted, too. `python -m tests.routing.engine.churn_process STRATEGY TURNS`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

from routing.engine.client_connection import ClientConnection
from routing.engine.config import parse
from routing.engine.fleet.connection_pool import WorkerPool
from routing.engine.observe.logs import Log
from routing.engine.request_path import RequestPath
from routing.engine.router import Router
from tests.fuzz.wires import InstantPool, Wire

KINDS = (
    "Worker", "InstantPool", "Pool", "WorkerConnection", "ClientConnection", "Exchange", "Charge",
    "Circuit", "Decision", "Number", "Histogram", "Ticket", "Caller", "ChunkedBody", "RequestHead",
    "ResponseHead", "WorkerConfig", "Config",
)  # fmt: skip
STANDING = 4
SPANS = 5
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
        self.sent = 0
        self.answered = 0
        self.router = Router(self.config(), Log("error"))
        self.pools: dict[str, InstantPool] = {}
        for _ in range(STANDING):
            self.join()
        self.client = ClientConnection(RequestPath(self.router))
        self.out = Wire()
        self.client.connection_made(cast(Any, self.out))  # acts like a transport

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
                pool = self.pools[worker.id] = InstantPool(worker.address)
                worker.pool = cast(WorkerPool, pool)
                table.probed(worker, "", False, 3)
                if self.born % 20 == 0:  # its gauges get children when scraped
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
        self.sent += 1
        text = f"{self.sent:08d} a prompt of its own " * 20
        body = json.dumps({"prompt": text, "user": f"u{self.sent}"}).encode()
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


def churn(strategy: str, turns: int) -> dict[str, Any]:
    """Counts after everything bounded is full, and after each of `SPANS` equal spans."""
    asyncio._set_running_loop(cast(Any, _Loop()))  # time stands still
    try:
        churned = Churned(strategy)
        for _ in range(500):
            churned.turn()
        counts = [churned.counts()]
        for _ in range(SPANS):
            for _ in range(turns // SPANS):
                churned.turn()
            counts.append(churned.counts())
    finally:
        asyncio._set_running_loop(None)
    table = churned.router.table
    return {
        "counts": counts,
        "workers": len(table.workers),
        "in_flight": sum(worker.in_flight for worker in table.workers.values()),
        "sent": churned.sent,
        "answered": churned.answered,
    }


if __name__ == "__main__":
    print(json.dumps(churn(sys.argv[1], int(sys.argv[2]))))
