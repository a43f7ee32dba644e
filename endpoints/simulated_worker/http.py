"""Small HTTP/1.1 server on asyncio streams, for whole requests and streamed responses.

Requests of one connection are answered in order, a disconnect cancels its request, a slow reader
pauses its stream, and bodies are bounded. Serves a router; not hardened for public networks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
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


async def read_request(
    reader: asyncio.StreamReader, proceed: Callable[[bytes], None]
) -> Request | None:
    """Return the next request, None if the connection ends before; `proceed` sends 100 Continue."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, headers, keep_alive = _parse_head(head)
        if headers.get("expect") == "100-continue":
            proceed(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Request(method, path, headers, await _read_body(reader, headers), keep_alive)
    except asyncio.LimitOverrunError:
        raise BadRequestError(431, "request head too long") from None
    except asyncio.IncompleteReadError:
        return None


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str], bool]:
    lines = head.decode("latin-1").strip("\r\n").split("\r\n")
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
    return words[0], words[1].partition("?")[0], headers, keep


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    coding = headers.get("transfer-encoding", "").lower()
    length = headers.get("content-length", "0")
    if coding:
        if coding != "chunked" or "content-length" in headers:
            raise BadRequestError(400, "ambiguous body length")
        return await _read_chunks(reader)
    if not length.isdigit():
        raise BadRequestError(400, "Content-Length is not a number")
    if int(length) > MAX_BODY_BYTES:
        raise BadRequestError(413, "request body too large")
    return await reader.readexactly(int(length))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise BadRequestError(400, "chunk without a size") from None
        if size < 0 or len(body) + size > MAX_BODY_BYTES:
            raise BadRequestError(413, "request body too large")
        body += (await reader.readexactly(size + 2))[:size]
        if size == 0:
            return bytes(body)


class Responder:
    """Writes one response: `send` a whole one, or `start`, `write` ..., `finish` a stream."""

    def __init__(self, writer: asyncio.StreamWriter, keep_alive: bool) -> None:
        self._writer = writer
        self.keep_alive = keep_alive
        self.status = 0
        self.finished = False

    def send(self, status: int, body: bytes, content_type: str, **headers: str) -> None:
        self._head(status, content_type, headers, f"Content-Length: {len(body)}\r\n", body)
        self.finished = True

    def start(self, status: int, content_type: str, **headers: str) -> None:
        self._head(status, content_type, headers, "Transfer-Encoding: chunked\r\n", b"")

    async def write(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    def finish(self) -> None:
        self._writer.write(b"0\r\n\r\n")
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
        self._writer.write("".join(lines).encode("latin-1") + b"\r\n" + body)


Handler = Callable[[Request, Responder], Awaitable[None]]


class _Connection(asyncio.StreamReaderProtocol):
    """A client that hangs up cancels its request."""

    def __init__(self, server: HttpServer) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(asyncio.StreamReader(MAX_HEAD_BYTES, loop), self._serve, loop)
        self._server = server
        self._serving: asyncio.Task[None] | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._serving = asyncio.current_task()
        assert task is not None
        self._server.connections[task] = writer
        try:
            await self._server.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the client hung up; Python 3.11 logs a traceback for a cancelled callback
        finally:
            writer.close()
            del self._server.connections[task]

    def eof_received(self) -> bool:
        return False  # close: a half-closed client is gone

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._serving is not None:
            self._serving.cancel()


class HttpServer:
    def __init__(self, handler: Handler) -> None:
        self.connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._handler = handler
        self._draining = False
        self._busy = 0  # requests in progress
        self._idle = asyncio.Event()
        self._listening: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Return the port, chosen by the kernel for 0."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: _Connection(self), host, port, backlog=1024
        )
        return int(self._listening.sockets[0].getsockname()[1])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection in order."""
        keep_alive = True
        while keep_alive:
            try:
                request = await read_request(reader, writer.write)
            except BadRequestError as error:
                responder = Responder(writer, keep_alive=False)
                responder.send(error.status, f"{error}\n".encode(), "text/plain")
                return
            if request is None:
                return
            keep_alive = await self._answer(request, writer)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Return whether the connection serves another request."""
        responder = Responder(writer, request.keep_alive and not self._draining)
        self._busy += 1
        try:
            await self._handler(request, responder)
        except Exception:  # noqa: BLE001
            # The connection is closed; an error here must not stop the server.
            _log.exception("%s %s failed", request.method, request.path)
            if not responder.status:
                responder.send(500, b"internal error\n", "text/plain")
            return False
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()
        return responder.finished and responder.keep_alive and not self._draining

    async def drain(self, deadline_s: float) -> bool:
        """Finish running requests, then close. Return False if any was cut off. New requests are
        still passed to the handler, which rejects them.
        """
        self._draining = True
        done = True
        if self._busy:
            self._idle.clear()
            try:
                await asyncio.wait_for(self._idle.wait(), deadline_s)
            except TimeoutError:
                done = False
        if self._listening is not None:
            self._listening.close()
        for writer in self.connections.values():
            writer.close()
        if self.connections:
            await asyncio.wait(self.connections, timeout=_FLUSH_S)
        return done
