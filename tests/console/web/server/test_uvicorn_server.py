"""The console's server sleeps between requests and ends at once on a signal."""

from __future__ import annotations

import asyncio
import signal
from importlib import import_module
from typing import Any

import pytest
from uvicorn.config import Config

from console.web.server import uvicorn_server
from console.web.server.uvicorn_server import IdleServer


async def _application(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("called")


def test_a_signal_ends_the_loop_before_its_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "TICK_S", 3600.0)

    async def run() -> IdleServer:
        config = Config(_application, lifespan="off", log_config=None, interface="asgi3")
        config.load()
        server = IdleServer(config)
        loop = asyncio.create_task(server.main_loop())
        while not server.server_state.default_headers:
            await asyncio.sleep(0)
        assert not loop.done()
        server.handle_exit(signal.SIGTERM, None)
        await asyncio.wait_for(loop, 60)
        return server

    server = asyncio.run(run())
    assert server.should_exit
    assert [name for name, _ in server.server_state.default_headers][:1] == [b"date"]


def test_a_signal_before_the_loop_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "TICK_S", 3600.0)

    async def run() -> None:
        config = Config(_application, lifespan="off", log_config=None, interface="asgi3")
        config.load()
        server = IdleServer(config)
        server.handle_exit(signal.SIGTERM, None)
        await asyncio.wait_for(server.main_loop(), 60)

    asyncio.run(run())


def test_the_command_line_runs_this_server(monkeypatch: pytest.MonkeyPatch) -> None:
    command_line: Any = import_module("uvicorn.main")
    used: list[Any] = []
    monkeypatch.setattr(command_line, "Server", command_line.Server)
    monkeypatch.setattr(command_line, "main", lambda: used.append(command_line.Server))
    uvicorn_server.main()
    assert used == [IdleServer]
