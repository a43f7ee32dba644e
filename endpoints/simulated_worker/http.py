"""Small HTTP/1.1 server for whole requests and streamed responses.

Requests of one connection are answered in order, a disconnect cancels its request, a slow reader
pauses its stream, and bodies are bounded. Serves a router; not hardened for public networks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
_MAX_PIPELINED = 16
_FLUSH_S = 2.0
_log = logging.getLogger(__name__)


class BadRequestError(Exception):
    """Malformed request; the connection is closed after `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # without the query
    headers: dict[str, str]  # names in lower case
    body: bytes
    keep_alive: bool


class Parser:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: tuple[str, str, dict[str, str], bool] | None = None
        self._length = 0
        self._chunks: bytearray | None = None

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def wants_continue(self) -> bool:
        """Return whether the sender waits for 100 Continue."""
        return self._head is not None and self._head[2].pop("expect", "") == "100-continue"

    def next(self) -> Request | None:
        if self._head is None and not self._parse_head():
            return None
        body = self._chunked() if self._chunks is not None else self._counted()
        if body is None or self._head is None:
            return None
        method, path, headers, keep_alive = self._head
        self._head = self._chunks = None
        return Request(method, path, headers, body, keep_alive)

    def _parse_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HEAD_BYTES):
            raise BadRequestError(431, "request head too long")
        if end < 0:
            return False
        lines = self._buffer[:end].decode("latin-1").lstrip("\r\n").split("\r\n")
        del self._buffer[: end + 4]
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise BadRequestError(400, "malformed request line")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise BadRequestError(400, "header line without a name")
            headers[name.lower()] = value.strip()
        keep = "close" not in headers.get("connection", "").lower() and words[2] != "HTTP/1.0"
        self._head = (words[0], words[1].partition("?")[0], headers, keep)
        self._measure(headers)
        return True

    def _measure(self, headers: dict[str, str]) -> None:
        coding = headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length", "0")
        if coding:
            if coding != "chunked" or "content-length" in headers:
                raise BadRequestError(400, "ambiguous body length")
            self._chunks = bytearray()
        elif not length.isdigit():
            raise BadRequestError(400, "Content-Length is not a number")
        else:
            self._length = int(length)
            if self._length > MAX_BODY_BYTES:
                raise BadRequestError(413, "request body too large")

    def _counted(self) -> bytes | None:
        if len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        return body

    def _chunked(self) -> bytes | None:
        assert self._chunks is not None
        while (end := self._buffer.find(b"\r\n")) >= 0:
            try:
                size = int(bytes(self._buffer[:end]).partition(b";")[0], 16)
            except ValueError:
                raise BadRequestError(400, "chunk without a size") from None
            if size < 0 or len(self._chunks) + size > MAX_BODY_BYTES:
                raise BadRequestError(413, "request body too large")
            stop = end + 2 + size
            if len(self._buffer) < stop + 2:
                return None
            self._chunks += self._buffer[end + 2 : stop]
            del self._buffer[: stop + 2]
            if size == 0:
                return bytes(self._chunks)
        return None


class Responder:
    """Writes one response: `send` a whole one, or `start`, `write` ..., `finish` a stream."""

    def __init__(self, connection: Connection, keep_alive: bool) -> None:
        self._connection = connection
        self.keep_alive = keep_alive
        self.status = 0
        self.finished = False

    def send(self, status: int, body: bytes, content_type: str, **headers: str) -> None:
        self._head(status, content_type, headers, f"Content-Length: {len(body)}\r\n", body)
        self.finished = True

    def start(self, status: int, content_type: str, **headers: str) -> None:
        self._head(status, content_type, headers, "Transfer-Encoding: chunked\r\n", b"")

    async def write(self, data: bytes) -> None:
        self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))
        await self._connection.writable.wait()

    def finish(self) -> None:
        self._connection.send(b"0\r\n\r\n")
        self.finished = True

    def _head(
        self, status: int, content_type: str, headers: dict[str, str], length: str, body: bytes
    ) -> None:
        self.status = status
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"]
        lines += [f"Content-Type: {content_type}\r\n", length]
        lines += [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        if not self.keep_alive:
            lines.append("Connection: close\r\n")
        self._connection.send("".join(lines).encode("latin-1") + b"\r\n" + body)


Handler = Callable[[Request, Responder], Awaitable[None]]


class Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._parser = Parser()
        self._waiting: asyncio.Queue[Request | BadRequestError] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's class does not inherit from Transport
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        self._task = asyncio.ensure_future(self._serve())

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        try:
            while (request := self._parser.next()) is not None:
                self._waiting.put_nowait(request)
            if self._parser.wants_continue():
                self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        except BadRequestError as error:
            self._waiting.put_nowait(error)
        if self._waiting.qsize() > _MAX_PIPELINED and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.left(self)
        self.writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def _serve(self) -> None:
        while True:
            if self._waiting.empty() and self._transport is not None:
                self._transport.resume_reading()
            request = await self._waiting.get()
            if isinstance(request, BadRequestError):
                responder = Responder(self, keep_alive=False)
                responder.send(request.status, f"{request}\n".encode(), "text/plain")
                break
            self.busy = True
            responder = Responder(self, request.keep_alive and not self._server.draining)
            try:
                await self._server.handler(request, responder)
            except Exception:  # noqa: BLE001
                # The connection is closed; an error here must not stop the server.
                _log.exception("%s %s failed", request.method, request.path)
                if not responder.status:
                    responder.send(500, b"internal error\n", "text/plain")
                break
            finally:
                self.busy = False
                self._server.answered()
            if not responder.finished or not responder.keep_alive or self._server.draining:
                break
        self.close()


class HttpServer:
    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.connections: set[Connection] = set()
        self.draining = False
        self._idle = asyncio.Event()
        self._empty = asyncio.Event()
        self._listening: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Return the port, chosen by the kernel for 0."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: Connection(self), host, port, backlog=1024
        )
        return int(self._listening.sockets[0].getsockname()[1])

    def answered(self) -> None:
        if not any(connection.busy for connection in self.connections):
            self._idle.set()

    async def drain(self, deadline_s: float) -> bool:
        """Finish running requests, then close. Return False if any was cut off. New requests are
        still passed to the handler, which rejects them.
        """
        self.draining = True
        done = True
        if any(connection.busy for connection in self.connections):
            self._idle.clear()
            try:
                await asyncio.wait_for(self._idle.wait(), deadline_s)
            except TimeoutError:
                done = False
        if self._listening is not None:
            self._listening.close()
        for connection in tuple(self.connections):
            connection.close()
        if self.connections:  # flush the last writes
            self._empty.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), _FLUSH_S)
        return done

    def left(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()
