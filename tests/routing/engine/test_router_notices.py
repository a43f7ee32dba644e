"""A router announces the state changes of its workers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from console.processkit.changes import SOCKET
from routing.engine.config import parse
from routing.engine.observe.logs import Log
from routing.engine.router import Router
from tests.routing.engine.harness import router

CONFIG = {
    "endpoint": "demo",
    "listen": "127.0.0.1:0",
    "workers": [{"id": "demo-worker-0", "url": "http://127.0.0.1:1"}],
}


async def test_a_notice_without_room_is_sent_again_with_the_ticks() -> None:
    async with router() as server:
        resent: list[None] = []
        server.router._changes.resend = lambda: resent.append(None)  # type: ignore[method-assign]
        server._tick()
        assert resent


def test_a_worker_that_stops_answering_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOCKET, str(tmp_path / "c.sock"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as received:
        received.bind(str(tmp_path / "c.sock"))
        received.setblocking(False)
        table = Router(parse(CONFIG, tmp_path), Log("error")).table
        (worker,) = table.workers.values()
        for error in ("", "health check: timed out"):
            table.probed(worker, error, False, 1)
            assert received.recv(256) == b"endpoint/demo"
