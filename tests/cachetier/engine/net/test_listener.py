"""Listener: bounded handshakes, and exhausted file descriptors."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cachetier.engine.config import ListenAddress
from cachetier.engine.net import listener
from cachetier.engine.net.listener import TlsListener
from cachetier.engine.net.tls import LiveContext, TlsFiles
from tests.cachetier.engine.conftest import Start
from tests.support.certificates import authority
from tests.support.resp import RawClient
from tests.support.waiting import until


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]  # a server's is writable


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[TlsListener, list[str]]]:
    away: list[str] = []
    live = LiveContext(TlsFiles(*authority().write(folder, "localhost")))
    one = TlsListener(live, Echo, lambda: away.append("away"))
    await one.open(ListenAddress("127.0.0.1", 0))
    yield one, away
    one.close()


async def silent(one: TlsListener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", one.port)


async def echoes(one: TlsListener) -> bool:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", one.port, ssl=authority().client(), server_hostname="localhost"
    )
    writer.write(b"hello")
    answer = await reader.readexactly(5)
    writer.close()
    return answer == b"hello"


async def test_pending_handshakes_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_MAX_HANDSHAKES", 2)
    async with asyncio.timeout(60), opened(tmp_path) as (one, away):
        held = [await silent(one) for _ in range(2)]
        extra, writer = await silent(one)
        assert await extra.read() == b""
        assert away == ["away"]
        writer.close()
        for _, each in held:
            each.close()
        while one._handshakes:
            await asyncio.sleep(0)
        assert await echoes(one)


async def test_silent_handshake_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_HANDSHAKE_S", 0.05)
    async with asyncio.timeout(60), opened(tmp_path) as (one, _):
        reader, writer = await silent(one)
        assert await reader.read() == b""
        writer.close()


async def test_closed_listener_leaves_no_handshake(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with opened(tmp_path) as (one, _):
            reader, writer = await silent(one)
            while not one._handshakes:
                await asyncio.sleep(0)
        assert await reader.read() == b""
        writer.close()


def test_exhausted_descriptors_are_survived(start: Start) -> None:
    """Without a busy loop: who waits outside is let in when others have left."""
    node = start()
    there = sum(1 for _ in Path(f"/proc/{node.process.pid}/fd").iterdir())
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (there + 4, there + 4))
    crowd = [socket.create_connection(("127.0.0.1", node.port), timeout=60) for _ in range(12)]
    until(lambda: "Not accepting connections" in node.log.read_text(), what="no descriptor left")
    for sock in crowd:
        sock.close()
    with RawClient(node.port, timeout_s=30) as raw:
        assert raw.call("PING") == ("+", b"PONG")
    assert node.log.read_text().count("Not accepting connections") < 20
