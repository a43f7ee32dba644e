"""Client of a run: sends requests on demand and reports responses.

Failed responses are counted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

_END = b"0\r\n\r\n"


class _Connection(asyncio.Protocol):
    def __init__(self, client: Client, port: int) -> None:
        self._client = client
        self.port = port
        self.number = -1  # request in flight
        self._tail = b""
        self._seen = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, number: int, request: bytes) -> None:
        self.number = number
        self._tail = b""
        self._seen = False
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self._tail and not data.startswith(b"HTTP/1.1 200"):
            self._client.failed(data[:200].split(b"\r\n", 1)[0].decode("latin-1"), self.number)
        if not self._seen and b"data:" in data:
            self._seen = True
            self._client.on_first(self.number)
        self._tail = (self._tail + data)[-16:]
        if self._tail.endswith(_END):
            number, self.number = self.number, -1
            self._client.idle[self.port].append(self)
            self._client.on_done(number)

    def connection_lost(self, _error: Exception | None) -> None:
        self._client.lost(self)


class Client:
    def __init__(self, *ports: int) -> None:
        """`ports`: of routers; each request goes to one by chance."""
        self.errors: dict[str, int] = {}  # failed responses by cause
        self.idle: dict[int, list[_Connection]] = {port: [] for port in ports}
        self.on_first: Callable[[int], None] = lambda _number: None
        self.on_done: Callable[[int], None] = lambda _number: None
        self.on_failed: Callable[[int], None] = lambda _number: None
        self._ports = ports
        self._chance = random.Random(len(ports))
        self._open: set[_Connection] = set()
        self._closing = False

    async def send(self, number: int, request: bytes) -> None:
        port = self._chance.choice(self._ports)
        if self.idle[port]:
            self.idle[port].pop().send(number, request)
            return
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: _Connection(self, port), "127.0.0.1", port)
        self._open.add(made)
        made.send(number, request)

    def close(self) -> None:
        self._closing = True
        for connection in self._open:
            connection.transport.abort()

    def lost(self, connection: _Connection) -> None:
        self._open.discard(connection)
        idle = self.idle[connection.port]
        if connection in idle:
            idle.remove(connection)
        elif not self._closing:
            self.failed("closed", connection.number)

    def failed(self, why: str, number: int) -> None:
        self.errors[why] = self.errors.get(why, 0) + 1
        self.on_failed(number)
