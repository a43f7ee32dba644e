"""Relay that forwards bytes without parsing: the lower bound for any router on this event loop.

    python -m bench.relay PORT WORKER_PORT

Each client connection gets one to the worker. The relay's cost is that of kernel and uvloop; a
router's cost above it is its own.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Side(asyncio.Protocol):
    """Forwards what it reads to the other side."""

    def __init__(self, other: Side | None) -> None:
        self.other = other
        self.waiting = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.other is None:
            self.connecting = asyncio.ensure_future(self._connect())
            return
        self.other.other = self
        self.transport.write(self.other.waiting)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Side(self), "127.0.0.1", int(sys.argv[2]))

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.waiting += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Side(None), "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
