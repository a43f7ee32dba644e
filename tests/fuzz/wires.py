"""Routers without sockets: real protocol objects over recording transports.

The result depends only on the input bytes, so that two runs can be compared. The clock is frozen:
deadlines are tested elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from routing.engine.client_connection import ClientConnection
from routing.engine.config import Address, Config, Key, parse
from routing.engine.fleet.circuit import Circuit
from routing.engine.fleet.connection_pool import ConnectionPool, WorkerPool
from routing.engine.fleet.worker_connection import WorkerConnection
from routing.engine.http.http1 import RequestHead
from routing.engine.observe.decisions import DecisionRing
from routing.engine.observe.logs import Log
from routing.engine.request_path import RequestPath
from routing.engine.router import Router

logging.getLogger("asyncio").disabled = True
HEADER_BYTES, HOLD_BYTES, BODY_BYTES = 1024, 300, 2048


class Wire:
    """Transport that records writes and its state."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.paused = self.closing = self.aborted = self.eof = False
        # called once, like a full buffer's callback
        self.on_write: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        if self.closing:
            return
        self.written += data
        reported, self.on_write = self.on_write, None
        if reported is not None:
            reported()

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        assert not self.paused, "paused twice"
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused, "resumed without a pause"
        self.paused = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, _name: str) -> None:
        return None


class _Task:
    def __init__(self, run: Callable[[], None], failed: Callable[[str, bool], None]) -> None:
        self.run: Callable[[], None] | None = run
        self.failed = failed

    def cancel(self) -> bool:
        self.run = None
        return True


class InstantPool:
    """A pool that connects at the next `RouterHarness.turn`."""

    def __init__(self, address: Address) -> None:
        self._pool = ConnectionPool(address, 1.0)
        self.tasks: list[_Task] = []
        self.connections: list[WorkerConnection] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def connect(self, connected: Any, failed: Any) -> Any:
        def run() -> None:
            connection = WorkerConnection(self)
            connection.connection_made(Wire())  # type: ignore[arg-type]  # acts like one
            self.connections.append(connection)
            connected(connection)

        task = _Task(run, failed)
        self.tasks.append(task)
        return task


class _Loop:
    """Event loop stub with a frozen clock."""

    def call_later(self, *_: object) -> None:
        return None


class WatchedPath:
    """Records all heads and handled requests."""

    def __init__(self, path: RequestPath) -> None:
        self._path = path
        self.router = path.router
        self.heads: list[RequestHead] = []
        self.handled: list[tuple[bytes, bytes, bytes | None]] = []

    def admit(self, head: RequestHead) -> Key:
        return self._path.admit(head)

    def name_request(self, head: RequestHead) -> None:
        self.heads.append(head)
        self._path.name_request(head)

    def handle(
        self, client: ClientConnection, head: RequestHead, key: Key, body: bytes | None, seen: bytes
    ) -> None:
        self.handled.append((head.method, head.target, body))
        self._path.handle(client, head, key, body, seen)


def _config(workers: int) -> Config:
    return parse(
        {
            "listen": "127.0.0.1:0",
            "workers": [
                {"id": f"w{port}", "url": f"http://127.0.0.1:{port}"}
                for port in range(1, workers + 1)
            ],
            "strategy": "prefixaware" if workers == 1 else "roundrobin",
            "open_paths": ["*"],
            "access_log": {"sample": 0},
            "limits": {
                "header_bytes": HEADER_BYTES,
                "hold_bytes": HOLD_BYTES,
                "body_bytes": BODY_BYTES,
            },
        },
        Path(),
    )


class RouterHarness:
    """One router with workers and a client; cheap to create, one for each run."""

    def __init__(self, workers: int = 1) -> None:
        # implements the methods used
        asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, _Loop()))
        router = self.router = _router(workers)
        self.watched = WatchedPath(RequestPath(router))
        router._count = 0
        router.instance = "boot"
        router.ring = DecisionRing(100)
        self.workers = list(router.table.workers.values())
        self.pools: list[InstantPool] = []
        for worker in self.workers:
            pool = InstantPool(worker.address)
            worker.pool = cast(WorkerPool, pool)
            worker.up, worker.circuit = True, Circuit()
            self.pools.append(pool)
        self.worker, self.pool = self.workers[0], self.pools[0]
        router.table.refresh()
        self.client = ClientConnection(self.watched)
        self.out = Wire()
        self.client.connection_made(cast(asyncio.Transport, self.out))  # duck-typed
        self.lost = False

    def turn(self) -> None:
        """Run one loop turn: requested connections are established."""
        for pool in self.pools:
            tasks, pool.tasks = pool.tasks, []
            for task in tasks:
                if task.run is not None:
                    task.run()

    def feed(self, parts: Iterable[bytes], between: Callable[[], None]) -> None:
        """Send client bytes while the router reads."""
        for part in parts:
            if not part:
                continue
            if self.out.paused:
                between()
            if self.out.closing or self.out.paused:
                return
            self.client.data_received(part)
            between()

    def end(self) -> None:
        """Close the client connection."""
        if not self.lost:
            self.lost = True
            self.out.closing = True
            self.client.connection_lost(None)
        asyncio._set_running_loop(None)


_kept: list[Router] = []


def _router(workers: int) -> Router:
    """Build a router, cached for one worker: its decisions have no state then, and tables are slow
    to build.
    """
    if workers != 1:
        return Router(_config(workers), Log("error"))
    if not _kept:
        _kept.append(Router(_config(1), Log("error")))
    return _kept[0]
