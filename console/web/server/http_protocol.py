"""uvicorn HTTP protocol with limits on request heads and connections.

By default uvicorn waits for a head without a deadline, its httptools parser accepts heads of any
size, and each handshake of a WebSocket logs advice to install a library. Selected by
`--http console.web.server.http_protocol:LimitedProtocol`. Connections with a request in progress
have no deadline here, so streams are not cut.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from console.core.counters import increment
from console.processkit import descriptors

HEAD_S = 10.0
MAX_HEAD = 64 * 1024
# 256 streams (console/web/server/sse.py) and as many for pages.
MOST_CONNECTIONS = 512
LEAST_CONNECTIONS = 8
_LOG_EVERY_S = 60.0
# Connections of one address that have not sent a whole head yet: a quarter, so that no address
# keeps others away. A proxy has such connections for moments only.
MOST_WAITING = 128
_TEXTS = {
    408: ("Request Timeout", f"The request header was not complete within {HEAD_S:g} seconds."),
    431: ("Request Header Fields Too Large", f"The request header exceeds {MAX_HEAD} bytes."),
    429: ("Too Many Requests", f"More than {MOST_WAITING} incomplete requests of this address."),
    503: ("Service Unavailable", "Too many connections are open."),
}
log = logging.getLogger(__name__)


def most_connections() -> int:
    """Return how many connections this process takes: without a file descriptor left, others would
    be reset without an answer or a line of log. Half are for what requests open.
    """
    within = (descriptors.limit() - descriptors.RESERVE) // 2
    return min(MOST_CONNECTIONS, max(LEAST_CONNECTIONS, within))


class HeadLimits(asyncio.Protocol):
    """Mixin for either of uvicorn's protocols, which have these attributes."""

    transport: Any
    loop: asyncio.AbstractEventLoop
    connections: set[Any]
    cycle: Any
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _address = ""
    _next_warning = 0.0
    _waiting: Counter[str] = Counter()
    """Connections that wait for a head, by address, of the whole process."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        if len(self.connections) > most_connections():
            self._warn(len(self.connections))
            self._refuse(503)
        elif self._waiting[self._address] >= MOST_WAITING:
            self._refuse(429)
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        # A whole head may come at once, so it is measured before it is parsed.
        if not self._is_serving() and self._head_bytes + _head_length(data) > MAX_HEAD:
            self._refuse(431)
            return
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._is_serving():
            self._head_is_complete()
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD:
            self._refuse(431)
        elif self._timer is None:
            self._await_head()

    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_complete()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self._head_is_late)
        self._waiting[self._address] += 1

    def _head_is_complete(self) -> None:
        self._head_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._end_waiting()

    def _end_waiting(self) -> None:
        self._timer = None
        self._waiting[self._address] -= 1
        if self._waiting[self._address] <= 0:
            del self._waiting[self._address]

    def _head_is_late(self) -> None:
        self._end_waiting()
        if self.transport.is_closing():
            return
        if self._head_bytes:
            self._refuse(408)
        else:  # browser preconnect: no response needed
            self.transport.close()

    def _warn(self, count: int) -> None:
        now = self.loop.time()
        if now >= HeadLimits._next_warning:
            HeadLimits._next_warning = now + _LOG_EVERY_S
            log.warning(
                "Connections are refused: %d are open, the limit is %d (%d of %d file descriptors)",
                count,
                most_connections(),
                descriptors.in_use(),
                descriptors.limit(),
            )

    def _refuse(self, status: int) -> None:
        increment("connections_refused", reason=str(status))
        title, text = _TEXTS[status]
        lines = (
            f"HTTP/1.1 {status} {title}",
            "content-type: text/plain; charset=utf-8",
            f"content-length: {len(text)}",
            "connection: close",
            *(("retry-after: 5",) if status in (429, 503) else ()),
        )
        self.transport.write(("\r\n".join((*lines, "", text))).encode("ascii"))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore the header without a line of log: any visitor can send it."""


def _head_length(data: bytes) -> int:
    """Bytes up to the end of the first head in `data`, all without an end."""
    end = data.find(b"\r\n\r\n")
    return len(data) if end < 0 else end + 4


class LimitedProtocol(HeadLimits, AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Limits on uvicorn's automatic protocol (httptools if installed, else h11)."""
