"""HTTP/1.1 client on asyncio that records when each part of a response arrives.

Every request ends with its last byte, a named error, or at its deadline. Cancelling a request
closes its connection. Overhead between events is part of the measurement.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

MAX_HEAD = 64 * 1024
MAX_LINE = 1024 * 1024
CONNECT_S = 5.0


class BrokenError(Exception):
    """The connection ended or the response is not HTTP; `code` is stable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class Reply:
    """Times are `time.monotonic`: uvloop's clock has millisecond resolution. `gaps`: seconds
    between token events. None: not reported.
    """

    status: int = 0
    first_at: float | None = None
    last_at: float = 0.0
    gaps: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    worker: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    error: str = ""
    code: str = ""
    body: bytes = b""
    ended: bool = False


class HttpTarget:
    """One server with its idle connections. `url` as in http://host:port/path."""

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http:// or https:// URL")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/")
        login = f"Authorization: Bearer {key}\r\n" if key else ""
        self._common = f"Host: {parts.netloc.rpartition('@')[2]}\r\n{login}Accept: */*\r\n"
        self._idle: list[_Connection] = []
        self.opened = 0

    async def post(self, path: str, body: Any) -> Reply:
        data = json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"POST {self._base}{path} HTTP/1.1\r\n{self._common}"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        return await self._exchange(head.encode("latin-1") + data)

    async def get(self, path: str) -> Reply:
        head = f"GET {self._base}{path} HTTP/1.1\r\n{self._common}\r\n"
        return await self._exchange(head.encode("latin-1"))

    async def _exchange(self, request: bytes) -> Reply:
        """Send a request. Raises BrokenError. The server may have closed an idle connection: a
        request without any reply is sent once more, over a new one.
        """
        while self._idle:
            connection = self._idle.pop()
            if connection.lost:
                continue
            try:
                return await self._over(connection, request)
            except BrokenError as error:
                if error.code != "closed_idle":
                    raise
        return await self._over(await self._connect(), request)

    async def _over(self, connection: _Connection, request: bytes) -> Reply:
        done = False
        try:
            reply = await connection.send(request)
            done = not connection.lost and connection.reusable
            return reply
        finally:
            if done:
                self._idle.append(connection)
            else:
                connection.abort()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, made = await loop.create_connection(
                    _Connection, self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            raise BrokenError("connect_timeout", f"No connection within {CONNECT_S:g} s.") from None
        except (OSError, ssl.SSLError) as error:
            text = f"No connection ({type(error).__name__})."
            raise BrokenError("connect", text) from None
        self.opened += 1
        return made

    def close(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()


class _Connection(asyncio.Protocol):
    """One request at a time: head, then a body that is chunked, of fixed length, or until close."""

    def __init__(self) -> None:
        self.lost = False
        self.reusable = True
        self._used = False
        self._waiting: asyncio.Future[Reply] | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:  # unsolicited data: do not reuse the connection
            self.abort()
            return
        try:
            self._feed(data, time.monotonic())
        except BrokenError as error:
            self._fail(error)

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True
        if self._waiting is None or self._waiting.done():
            return
        if self._state == "until_end":
            self._finish()
        elif not self._buffer and self._state == "head" and self._used:
            self._fail(BrokenError("closed_idle", "The server closed an idle connection."))
        else:
            self._fail(
                BrokenError("broken", "The connection closed before the response was complete.")
            )

    async def send(self, request: bytes) -> Reply:
        self._reply = Reply()
        self._buffer = b""
        self._line = b""
        self._state = "head"
        self._left = 0
        self._events = False
        self._waiting = self._loop.create_future()
        self._transport.write(request)
        try:
            return await self._waiting
        finally:
            self._waiting = None
            self._used = True

    def abort(self) -> None:
        self.lost = True
        self._transport.abort()

    def _feed(self, data: bytes, now: float) -> None:
        self._buffer += data
        while True:
            state = self._state
            if state == "head":
                if not self._head():
                    return
            elif state == "chunk_size":
                if not self._chunk_size():
                    return
            elif state in ("chunk", "length"):
                if not self._part(now):
                    return
            elif state == "until_end":
                self._body(self._buffer, now)
                self._buffer = b""
                return
            else:
                return

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BrokenError("protocol", "The response header is too long.")
            return False
        first, *lines = self._buffer[:end].split(b"\r\n")
        self._buffer = self._buffer[end + 4 :]
        words = first.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise BrokenError("protocol", "The response is not HTTP.")
        status = int(words[1])
        if 100 <= status < 200:
            return True  # the final head follows (1xx)
        self._reply.status = status
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        self._described(headers, words[0])
        return True

    def _described(self, headers: dict[bytes, bytes], version: bytes) -> None:
        self._reply.worker = headers.get(b"x-emberline-worker", b"").decode("latin-1")
        kind = headers.get(b"content-type", b"")
        self._events = self._reply.status == 200 and kind.startswith(b"text/event-stream")
        closing = headers.get(b"connection", b"").lower() == b"close"
        self.reusable = not closing and version != b"HTTP/1.0"
        length = headers.get(b"content-length")
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            self._state = "chunk_size"
        elif length is not None:
            if not length.isdigit():
                raise BrokenError("protocol", "Content-Length is not a number.")
            self._left, self._state = int(length), "length"
            if not self._left:
                self._finish()
        else:
            self.reusable, self._state = False, "until_end"

    def _chunk_size(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        text = self._buffer[:end].split(b";", 1)[0].strip()
        try:
            size = int(text, 16)
        except ValueError:
            raise BrokenError("protocol", "A chunk size is not a number.") from None
        if size == 0:
            if len(self._buffer) < end + 4:
                return False
            self._buffer = self._buffer[end + 4 :]
            self._finish()
            return False
        self._buffer = self._buffer[end + 2 :]
        self._left, self._state = size + 2, "chunk"
        return True

    def _part(self, now: float) -> bool:
        whole = len(self._buffer) >= self._left
        if self._state == "chunk" and not whole:
            return False  # wait: servers send this small piece at once
        part, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
        self._left -= len(part)
        self._body(part[:-2] if self._state == "chunk" else part, now)
        if self._state == "chunk":
            self._state = "chunk_size"
        elif not self._left:
            self._finish()
            return False
        return whole

    def _body(self, part: bytes, now: float) -> None:
        if not self._events:
            self._reply.body = (self._reply.body + part)[: 8 * MAX_LINE]
            return
        *lines, self._line = (self._line + part).split(b"\n")
        if len(self._line) > MAX_LINE:
            raise BrokenError("protocol", "A line of the stream is too long.")
        for line in lines:
            if line.startswith(b"data:"):
                read_event(self._reply, line[5:].strip(), now)

    def _finish(self) -> None:
        self._state = "done"
        self.reusable = self.reusable and not self._buffer
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(self._reply)

    def _fail(self, error: BrokenError) -> None:
        self.lost = True
        self._transport.abort()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


def read_event(reply: Reply, data: bytes, now: float) -> None:
    if data == b"[DONE]":
        reply.ended = True
        return
    try:
        event = json.loads(data)
    except ValueError:
        return
    if not isinstance(event, dict):
        return
    if isinstance(event.get("error"), dict):
        reply.error = str(event["error"].get("message") or "The stream ended with an error.")[:300]
        reply.code = str(event["error"].get("code") or "stream_error")[:60]
    piece = _piece(event)
    if piece is not None:
        if reply.first_at is None:
            reply.first_at = now
        else:
            reply.gaps.append(now - reply.last_at)
        reply.last_at = now
        reply.text.append(piece)
    usage = event.get("usage")
    if isinstance(usage, dict):
        reply.prompt_tokens = usage.get("prompt_tokens")
        reply.completion_tokens = usage.get("completion_tokens")
        details = usage.get("prompt_tokens_details")
        reply.cached_tokens = details.get("cached_tokens") if isinstance(details, dict) else None


def _piece(event: dict[str, Any]) -> str | None:
    """Return the text of a token event. A chat's first event has only the role and its last one
    only the finish reason: neither is a token.
    """
    choices = event.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    choice = choices[0]
    if "text" in choice:
        return str(choice["text"]) if choice["text"] else None
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return None
    content = delta.get("content") or delta.get("reasoning_content")
    return str(content) if content else None
