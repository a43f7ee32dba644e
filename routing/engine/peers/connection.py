"""Connection to Valkey or Redis in RESP3: commands without waiting, and published messages.

Both on one connection, so that a reply and a message are often read together. A library's client
costs several times the CPU of the batches it carries.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from routing.engine.config import StateStoreConfig

MAX_REPLY_BYTES = 4 * 1024 * 1024
TIMEOUT_S = 1.0
NO_HANDSHAKE = f"no response to the TLS handshake within {TIMEOUT_S:g} s"
NO_REPLY = "no valid reply before the connection was closed"
_MAX_ITEMS = 100_000
_MAX_DEPTH = 4

Part = bytes | str | int | float
OnMessage = Callable[[bytes, bytes], None]


class StoreError(Exception):
    """Error reply, invalid reply or lost connection."""


class Push(list[Any]):
    """Values that are no reply to a command."""


_LISTS: dict[bytes, tuple[type[list[Any]], int]] = {
    b"*": (list, 1),
    b">": (Push, 1),
    b"%": (list, 2),
}


def pack_command(*parts: Part) -> bytes:
    out = [b"*%d\r\n" % len(parts)]
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)


def parse_reply(data: bytes, at: int, depth: int = 0) -> tuple[Any, int] | None:
    """Return the value at `at` and the place behind it, None if it is incomplete; an error reply as
    a StoreError. Raise StoreError for anything else.
    """
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    kind, text = data[at : at + 1], data[at + 1 : end]
    end += 2
    if kind == b"+":
        return text, end
    if kind == b"-":
        return StoreError(text.decode("utf-8", "replace")[:200]), end
    if kind == b"_":
        return None, end
    try:
        number = int(text)
    except ValueError:
        raise StoreError("invalid reply") from None
    if kind == b":":
        return number, end
    if kind == b"$" and -1 <= number <= MAX_REPLY_BYTES:
        if number < 0:
            return None, end
        return (
            (data[end : end + number], end + number + 2) if len(data) >= end + number + 2 else None
        )
    if kind in _LISTS and -1 <= number <= _MAX_ITEMS and depth < _MAX_DEPTH:
        sort, each = _LISTS[kind]
        items = sort()
        for _ in range(number * each):
            reply = parse_reply(data, end, depth + 1)
            if reply is None:
                return None
            items.append(reply[0])
            end = reply[1]
        return items, end
    raise StoreError("invalid reply")


class StoreConnection(asyncio.Protocol):
    """Connection to the state store. `on_message` gets published messages; everything else answers
    the oldest command.
    """

    def __init__(self, on_message: OnMessage) -> None:
        self._on_message = on_message
        self._data = b""
        self._answered = False
        self._sent: deque[tuple[float, asyncio.Future[Any] | None]] = deque()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received_at = perf_counter()
        self._transport: asyncio.Transport

    @classmethod
    async def to(cls, store: StateStoreConfig, on_message: OnMessage) -> StoreConnection:
        """Connect and log in. Raise OSError, TimeoutError and StoreError."""
        secure = ssl.create_default_context(cafile=store.ca) if store.tls else None
        async with asyncio.timeout(TIMEOUT_S + (TIMEOUT_S if secure else 0.0)):
            loop = asyncio.get_running_loop()
            try:
                _, connection = await loop.create_connection(
                    lambda: cls(on_message),
                    store.host,
                    store.port,
                    ssl=secure,
                    ssl_handshake_timeout=TIMEOUT_S if secure else None,
                )
            except ConnectionAbortedError:
                if secure is None:
                    raise
                raise StoreError(NO_HANDSHAKE) from None
            try:
                if store.password:
                    names = (store.username,) if store.username else ()
                    await connection.command("AUTH", *names, store.password)
                await connection.command("HELLO", 3)
                if store.database:
                    await connection.command("SELECT", store.database)
                await connection.command("PING")
            except BaseException:
                connection.close()
                raise
        return connection

    @property
    def waiting_s(self) -> float:
        """Return the age of the oldest command without a reply."""
        return perf_counter() - self._sent[0][0] if self._sent else 0.0

    @property
    def buffered(self) -> int:
        """Return the bytes not yet written to the socket."""
        return self._transport.get_write_buffer_size()

    def command(self, *parts: Part) -> asyncio.Future[Any]:
        """Send a command; await its reply, which raises StoreError for an error."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._send(pack_command(*parts), future)
        return future

    def post(self, *parts: Part) -> None:
        """Send a command whose reply matters only if it is an error."""
        self._send(pack_command(*parts), None)

    def _send(self, data: bytes, future: asyncio.Future[Any] | None) -> None:
        if self.lost.done():
            raise StoreError("connection lost")
        self._sent.append((perf_counter(), future))
        self._transport.write(data)

    def close(self) -> None:
        self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered and (exc is None or isinstance(exc, ConnectionResetError)):
            exc = StoreError(NO_REPLY)
        self._fail(exc or StoreError("connection closed"))

    def data_received(self, data: bytes) -> None:
        self._data = data = self._data + data if self._data else data
        value = 0
        try:
            while value < len(data):
                reply = parse_reply(data, value)
                if reply is None:
                    break
                value = reply[1]
                self._receive(reply[0])
        except StoreError as error:
            self._fail(error if self._answered else StoreError(NO_REPLY))
            return
        self._data = data[value:]
        if len(self._data) > MAX_REPLY_BYTES:
            self._fail(StoreError("reply too large"))

    def _receive(self, value: Any) -> None:
        if type(value) is Push and value[:1] == [b"message"]:
            self.received_at = perf_counter()
            self._on_message(*value[1:3])
            return
        if not self._sent:
            raise StoreError("reply without a command")
        _, future = self._sent.popleft()
        self._answered = True
        if isinstance(value, StoreError):
            if future is None:
                raise value
            if not future.done():
                future.set_exception(value)
        elif future is not None and not future.done():
            future.set_result(value)

    def _fail(self, error: Exception) -> None:
        if not self.lost.done():
            self.lost.set_exception(error)
            self.lost.exception()  # may not be awaited
        for _, future in self._sent:
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()
        self._sent.clear()
        self._transport.abort()
