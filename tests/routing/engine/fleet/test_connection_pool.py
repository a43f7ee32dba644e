"""Connections that end while they are opened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from routing.engine.config.schema import Address
from routing.engine.fleet.connection_pool import ConnectionPool


async def test_connection_lost_before_its_use_is_a_failed_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker accepts, and ends before the task that waits for the connection runs again."""
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    create = loop.create_connection

    async def create_late(*args: Any, **named: Any) -> Any:
        transport, protocol = await create(*args, **named)
        while not transport.is_closing():
            await asyncio.sleep(0.001)
        return transport, protocol

    monkeypatch.setattr(loop, "create_connection", create_late)
    host, port = server.sockets[0].getsockname()
    pool = ConnectionPool(Address(host, port), 5.0)
    connected: list[Any] = []
    failed: list[tuple[str, bool]] = []
    await pool.connect(connected.append, lambda reason, refused: failed.append((reason, refused)))
    assert (connected, failed) == ([], [("the worker closed the connection", False)])
    server.close()
