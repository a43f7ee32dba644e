"""Incomplete and endless request heads and connection limits, with both parsers of uvicorn."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from console import programs
from console.processkit import descriptors
from console.web.server import http_protocol
from console.web.server.http_protocol import HeadLimits, LimitedProtocol

SOON_S, LONG_S = 0.05, 60.0
HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"
WHOLE = HALF + b"\r\n"


class Transport(asyncio.Transport):
    def __init__(self, address: str = "") -> None:
        super().__init__()
        self.address = address
        self.written = b""
        self.closed = asyncio.Event()
        self.answered = asyncio.Event()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.address, 5000) if name == "peername" and self.address else default

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        self.answered.set()

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def close(self) -> None:
        self.closed.set()

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class ServerHarness:
    """Connections to an application that answers once `answer` is set."""

    def __init__(self, parser: Any) -> None:
        self.answer = asyncio.Event()
        self._class: Any = type("Limited", (HeadLimits, parser), {})
        self._config = Config(self._application, interface="asgi3", lifespan="off", log_config=None)
        self._state = ServerState()

    async def _application(self, _scope: Any, _receive: Any, send: Any) -> None:
        await self.answer.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def connect(self, address: str = "") -> tuple[Any, Transport]:
        made = self._class(config=self._config, server_state=self._state, app_state={})
        transport = Transport(address)
        made.connection_made(transport)
        return made, transport


@pytest.fixture(params=[HttpToolsProtocol, H11Protocol])
async def impatient_server(request: Any, monkeypatch: pytest.MonkeyPatch) -> ServerHarness:
    monkeypatch.setattr(http_protocol, "HEAD_S", SOON_S)
    return ServerHarness(request.param)


async def closed(transport: Transport) -> bytes:
    await asyncio.wait_for(transport.closed.wait(), LONG_S)
    return transport.written


async def test_silent_connection_is_closed(impatient_server: ServerHarness) -> None:
    assert await closed(impatient_server.connect()[1]) == b""


async def test_slow_request_head_is_answered_and_closed(impatient_server: ServerHarness) -> None:
    protocol, transport = impatient_server.connect()
    protocol.data_received(HALF)
    while not transport.is_closing():
        protocol.data_received(b"X-A: 1\r\n")
        await asyncio.sleep(SOON_S / 5)
    assert transport.written.startswith(b"HTTP/1.1 408 ")


async def test_slow_second_request_head_is_closed(impatient_server: ServerHarness) -> None:
    protocol, transport = impatient_server.connect()
    impatient_server.answer.set()
    protocol.data_received(WHOLE)
    await asyncio.wait_for(transport.answered.wait(), LONG_S)
    protocol.data_received(HALF)
    assert b"408 " in await closed(transport)


async def test_active_request_has_no_deadline(impatient_server: ServerHarness) -> None:
    protocol, transport = impatient_server.connect()
    protocol.data_received(WHOLE)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(transport.closed.wait(), SOON_S * 4)
    assert transport.written == b""
    impatient_server.answer.set()
    await asyncio.wait_for(transport.answered.wait(), LONG_S)
    assert b"204" in transport.written


async def test_endless_request_head_is_rejected(impatient_server: ServerHarness) -> None:
    protocol, transport = impatient_server.connect()
    protocol.data_received(HALF)
    for _ in range(2 * http_protocol.MAX_HEAD // 4000):
        if not transport.is_closing():
            protocol.data_received(b"X-A: " + b"x" * 4000 + b"\r\n")
    assert transport.written[9:12] in (b"431", b"400")  # h11 has a limit of its own


async def test_connections_are_bounded(
    impatient_server: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "MOST_CONNECTIONS", 2)
    _, first = impatient_server.connect()
    impatient_server.connect()
    assert (await closed(impatient_server.connect()[1])).startswith(b"HTTP/1.1 503 ")
    assert not first.written


def test_console_uses_this_protocol() -> None:
    path = f"{LimitedProtocol.__module__}:{LimitedProtocol.__qualname__}"
    assert f"--http {path}" in " ".join(programs.web_arguments("127.0.0.1", 1, behind_proxy=False))


async def test_long_request_head_is_rejected_though_it_comes_at_once(
    impatient_server: ServerHarness,
) -> None:
    """The event loop reads up to 256 KiB at a time."""
    impatient_server.answer.set()
    protocol, transport = impatient_server.connect()
    protocol.data_received(HALF + b"X-A: " + b"x" * (100 * 1024) + b"\r\n\r\n")
    assert (await closed(transport)).startswith(b"HTTP/1.1 431 ")
    body = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 102400\r\n\r\n" + b"x" * 102400
    protocol, transport = impatient_server.connect()
    protocol.data_received(body)
    await asyncio.wait_for(transport.answered.wait(), LONG_S)
    assert transport.written.startswith(b"HTTP/1.1 204 "), "a long body is none"


async def test_address_with_many_incomplete_heads_leaves_room_for_others(
    impatient_server: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", LONG_S)
    monkeypatch.setattr(http_protocol, "MOST_WAITING", 3)
    monkeypatch.setattr(HeadLimits, "_waiting", Counter())
    impatient_server.answer.set()
    protocols = [impatient_server.connect("192.0.2.1")[0] for _ in range(3)]
    assert (await closed(impatient_server.connect("192.0.2.1")[1])).startswith(b"HTTP/1.1 429 ")
    protocol, transport = impatient_server.connect("192.0.2.2")
    protocol.data_received(WHOLE)
    await asyncio.wait_for(transport.answered.wait(), LONG_S)
    # A head that is complete, and a connection that ends, give their places back.
    protocols[0].data_received(WHOLE)
    protocols[1].connection_lost(None)
    for _ in range(2):
        assert not impatient_server.connect("192.0.2.1")[1].is_closing()
    assert impatient_server.connect("192.0.2.1")[1].is_closing()


async def test_upgrade_request_logs_nothing(
    impatient_server: ServerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    impatient_server.answer.set()
    for kind in (b"websocket", b"h2c"):
        protocol, transport = impatient_server.connect()
        protocol.data_received(HALF + b"Connection: Upgrade\r\nUpgrade: " + kind + b"\r\n\r\n")
        await asyncio.wait_for(transport.answered.wait(), LONG_S)
        assert transport.written.startswith(b"HTTP/1.1 204 ")
    assert not caplog.records


async def test_few_file_descriptors_limit_the_connections(
    impatient_server: ServerHarness,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Refused with an answer and a line a minute, where the system would reset them in silence."""
    monkeypatch.setattr(http_protocol, "HEAD_S", LONG_S)
    monkeypatch.setattr(HeadLimits, "_next_warning", 0.0)
    monkeypatch.setattr(HeadLimits, "_waiting", Counter())
    monkeypatch.setattr(descriptors, "limit", lambda: descriptors.RESERVE + 20)
    for _ in range(10):
        assert not impatient_server.connect()[1].is_closing()
    for _ in range(3):
        assert (await closed(impatient_server.connect()[1])).startswith(b"HTTP/1.1 503 ")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("Connections are refused: 11 are open, the limit is 10 (")
    assert line.endswith(f"of {descriptors.RESERVE + 20} file descriptors)")
