"""Plain and TLS listeners; each TLS connection uses the newest certificates.

asyncio servers keep their initial context; here each accepted connection gets the current one, so
certificates change without closing the port. Concurrent handshakes are limited in number and time,
since they are expensive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from time import monotonic

from cachetier.engine.config import ListenAddress
from cachetier.engine.net.tls import LiveContext

_BACKLOG = 512
_MAX_HANDSHAKES = 256
_ACCEPTS_PER_TURN = 32  # connections accepted per event loop turn
_HANDSHAKE_S = 10.0
_PAUSE_S = 0.5  # after file descriptors or memory ran out
_LOG_INTERVAL_S = 60.0

log = logging.getLogger(__name__)


class Listener:
    """Listening port; passes ownership of each connection to `take` as a non-blocking socket."""

    def __init__(self, take: Callable[[socket.socket], None]) -> None:
        self._take = take
        self._sockets: list[socket.socket] = []
        self._pauses = 0
        self._logged_at = float("-inf")

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    async def open(self, place: ListenAddress) -> None:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(
            place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(addresses):
                self._sockets.append(_open_socket(family, address))
                if place.port == 0:
                    break
        except OSError:
            self.close()
            raise
        for sock in self._sockets:
            loop.add_reader(sock.fileno(), self._accept, sock)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets = []

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, _ = listener.accept()
                sock.setblocking(False)
                self._take(sock)
            except (BlockingIOError, InterruptedError):
                return
            except (OSError, MemoryError) as error:  # mostly EMFILE
                self._wait(listener, error)
                return

    def _wait(self, listener: socket.socket, error: OSError | MemoryError) -> None:
        """Stop accepting for a while: with no descriptors left, listening would spin the loop."""
        self._pauses += 1
        now = monotonic()
        if now > self._logged_at + _LOG_INTERVAL_S:
            self._logged_at = now
            log.warning(
                "Not accepting connections for %g s (%d times so far): %s",
                _PAUSE_S,
                self._pauses,
                error.strerror if isinstance(error, OSError) else "out of memory",
            )
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        loop.call_later(_PAUSE_S, self._listen_again, listener)

    def _listen_again(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener)


class TlsListener(Listener):
    """TLS listener; `turned_away` counts connections closed by the handshake limit."""

    def __init__(
        self,
        live: LiveContext,
        factory: Callable[[], asyncio.BaseProtocol],
        turned_away: Callable[[], None],
    ) -> None:
        super().__init__(self._begin)
        self._live = live
        self._factory = factory
        self._turned_away = turned_away
        self._handshakes: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        super().close()
        for task in self._handshakes:
            task.cancel()

    def _begin(self, sock: socket.socket) -> None:
        if len(self._handshakes) >= _MAX_HANDSHAKES:
            sock.close()
            self._turned_away()
            return
        task = asyncio.get_running_loop().create_task(self._shake_hands(sock))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, sock: socket.socket) -> None:
        try:
            # The context counted the failure; the transport closed the socket.
            with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._factory, sock, ssl=self._live.context, ssl_handshake_timeout=_HANDSHAKE_S
                )
                return
        except asyncio.CancelledError:
            sock.close()
            raise
        sock.close()


def _open_socket(family: int, address: tuple[str | int, ...] | tuple[int, bytes]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
