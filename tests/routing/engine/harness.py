"""Router in this process on free ports, and a client that sees every byte."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from routing.engine.config import Address, parse
from routing.engine.config.source import ConfigSource
from routing.engine.http.http1 import RequestHead
from routing.engine.observe.decisions import Decision
from routing.engine.observe.logs import Log
from routing.engine.observe.metrics import Metrics
from routing.engine.policies.base import RequestFacts
from routing.engine.prompt.engine_request import EngineRequest
from routing.engine.request import RoutedRequest
from routing.engine.server import RouterServer
from tests.support.fake_worker import FakeWorker

DEADLINE_S = 60.0
# Of a stream: the caller's own wish, so that the router takes no event out.
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


class Wire:
    """Transport of every router and client of a test: plain TCP, or TLS with these."""

    settings: dict[str, Any] = {}
    client: ssl.SSLContext | None = None


async def until(condition: Callable[[], Any], what: str = "") -> Any:
    """The condition's first true answer; fails at the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE_S
    while not (answer := condition()):
        assert loop.time() < end, f"not within {DEADLINE_S} s: {what or condition}"
        await asyncio.sleep(0.002)
    return answer


def workers(*fakes: FakeWorker) -> list[dict[str, Any]]:
    return [{"id": f"w{index}", "url": fake.url} for index, fake in enumerate(fakes)]


@asynccontextmanager
async def router(
    *fakes: FakeWorker, ready: int | None = None, path: Path | None = None, **settings: Any
) -> AsyncIterator[RouterServer]:
    """A running router; with `path`, configured by that file. Waits until workers are up."""
    data: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "workers": workers(*fakes),
        "health": {"interval_s": 0.05},
        "access_log": {"sample": 1},
        **Wire.settings,
        "open_paths": ["*"],  # what is closed by default has tests of its own
        **settings,
    }
    source = None
    if path is not None:
        path.write_text(json.dumps(data))
        source = ConfigSource(path)
    config = source.config if source is not None else parse(data, Path())
    server = RouterServer(config, source, Log("debug"))
    await server.start()
    try:
        wanted = len(config.workers) if ready is None else ready
        await until(lambda: len(server.router.table.eligible) >= wanted, "workers up")
        yield server
    finally:
        for client in list(server.router.clients):
            client.transport.abort()
        await server.close()


class Response:
    def __init__(self, status: int, headers: dict[str, str], body: bytes, raw: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body  # without chunk framing
        self.raw = raw  # the body as it came on the wire

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Client:
    """One connection to an address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, address: Address | None, tls: ssl.SSLContext | None = None) -> Client:
        assert address is not None
        tls = tls or Wire.client
        name = "localhost" if tls is not None else None
        return cls(
            *await asyncio.open_connection(
                address.host, address.port, ssl=tls, server_hostname=name
            )
        )

    @classmethod
    async def plain(cls, address: Address | None) -> Client:
        assert address is not None
        return cls(*await asyncio.open_connection(address.host, address.port))

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        # In pieces: over TLS a loop takes any single write whole, and `drain` would not wait.
        for at in range(0, len(data), 65_536):
            self.writer.write(data[at : at + 65_536])
            await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {}
        for line in filter(None, lines):
            name, _, value = line.partition(":")
            assert name.lower() not in headers, f"{name} came twice"
            headers[name.lower()] = value.strip()
        return int(first.split(" ")[1]), headers

    async def response(self, method: str = "GET") -> Response:
        """Read one; IncompleteReadError when it breaks off."""
        status, headers = await self.head()
        async with asyncio.timeout(DEADLINE_S):
            if method == "HEAD" or status in (204, 304):
                return Response(status, headers, b"", b"")
            if headers.get("transfer-encoding") == "chunked":
                body, raw = await self._chunked()
                return Response(status, headers, body, raw)
            if "content-length" in headers:
                raw = await self.reader.readexactly(int(headers["content-length"]))
            else:
                raw = await self.reader.read(-1)
            return Response(status, headers, raw, raw)

    async def _chunked(self) -> tuple[bytes, bytes]:
        body = raw = b""
        while True:
            line = await self.reader.readuntil(b"\r\n")
            size = int(line.strip(), 16)
            data = await self.reader.readexactly(size + 2)
            raw += line + data
            body += data[:-2]
            if size == 0:
                return body, raw

    async def closed(self) -> bool:
        """The peer has ended the connection, one way or the other."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


def post(body: Any, path: str = "/v1/chat/completions", **headers: str) -> bytes:
    """A request's bytes; header names with `_` for `-`."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: router", f"content-length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


async def ask(server: RouterServer, request: bytes, method: str = "POST") -> Response:
    """One request on a connection of its own."""
    async with await Client.to(server.listen) as client:
        await client.send(request)
        return await client.response(method)


async def admin(
    server: RouterServer, target: str, method: str = "GET", body: bytes = b"", lines: str = ""
) -> Response:
    """`lines`: whole header lines more."""
    async with await Client.plain(server.admin) as client:
        more = f"content-length: {len(body)}\r\n{lines}\r\n"
        head = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\n{more}"
        await client.send(head.encode() + body)
        return await client.response(method)


async def metric(server: RouterServer, name: str, **labels: str) -> float:
    """The sum of a metric's samples which carry these labels; KeyError without any."""
    total, found = 0.0, False
    for line in (await admin(server, "/metrics")).body.decode().splitlines():
        if line.startswith((name + "{", name + " ")) and all(
            f'{key}="{value}"' in line for key, value in labels.items()
        ):
            total += float(line.rpartition(" ")[2])
            found = True
    if not found:
        raise KeyError(name, labels)
    return total


async def becomes(server: RouterServer, wanted: float, name: str, **labels: str) -> None:
    """The metric has this value soon; fails at the deadline."""
    end = asyncio.get_running_loop().time() + DEADLINE_S
    while (found := await metric(server, name, **labels)) != wanted:
        assert asyncio.get_running_loop().time() < end, f"{name} {labels} is {found}"
        await asyncio.sleep(0.01)


_MODEL = Metrics("n", "e").other


def routed_request(facts: RequestFacts, decision: Decision, **fields: Any) -> RoutedRequest:
    """Return a request without connections, for what only accounts for it."""
    head = RequestHead(b"POST", b"/v1/completions", 1)
    request = RoutedRequest(head, b"", facts, _MODEL, decision, EngineRequest(head.path))
    for name, value in fields.items():
        setattr(request, name, value)
    return request
