"""Listening sockets with renewable TLS.

The sockets stay open while certificates change, so no connection is refused.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from routing.engine.config import Address

_UNAVAILABLE_ADDRESS = (
    errno.EADDRNOTAVAIL,
    errno.EAFNOSUPPORT,
)  # address family without an interface
_CLOSE_ROUNDS = 10
Factory = Callable[[], asyncio.Protocol]


class StartError(Exception): ...


def _bind_one(family: int, place: tuple[object, ...], reuse_port: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # IPv6-only, so that "0.0.0.0" and "[::]" can both be listed on any system.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(place)
    except OSError:
        sock.close()
        raise
    return sock


async def _bind_all(address: Address, reuse_port: bool) -> list[socket.socket]:
    records = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, _, _, _, place in dict.fromkeys(records):
        if sockets and not address.port:  # free port: use the same one for all
            place = (place[0], sockets[0].getsockname()[1], *place[2:])
        try:
            sockets.append(_bind_one(family, place, reuse_port))
        except OSError as error:
            problem = error
            if error.errno not in _UNAVAILABLE_ADDRESS:
                sockets, unused = [], sockets
                for sock in unused:
                    sock.close()
                break
    if not sockets and problem is not None:
        raise problem
    return sockets


async def _stop(servers: list[asyncio.Server], copies: list[socket.socket]) -> None:
    """Close servers without losing what they accepted: asyncio begins an accepted connection one
    turn of the loop later, and would drop it without closing it if its server was closed meanwhile.
    """
    loop = asyncio.get_running_loop()
    for copy in copies:
        if copy.fileno() >= 0:
            loop.remove_reader(copy)  # asyncio accepts no more; uvloop has no reader here
    await asyncio.sleep(0)
    for server in servers:
        server.close()


class Listener:
    """Listener of one address: `open`, any number of `renew`, `close`.

    `reuse_port`: other processes listen on the address, too, each with a queue of its own.
    """

    def __init__(
        self, address: Address, factory: Factory, backlog: int, *, reuse_port: bool = False
    ) -> None:
        self.address = address  # with the actual port once open
        self._factory = factory
        self._backlog = backlog
        self._reuse_port = reuse_port
        self._tls: tuple[ssl.SSLContext | None, float] = (None, 0.0)
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._copies: list[socket.socket] = []  # of the servers

    async def open(self, tls: ssl.SSLContext | None = None, handshake_s: float = 10.0) -> None:
        try:
            self._sockets = await _bind_all(self.address, self._reuse_port)
            await self.renew(tls, handshake_s)
        except OSError as error:
            self.close()
            raise StartError(
                f"cannot listen on {self.address}: {error.strerror or error}. "
                "Choose another address, or stop the process that uses it."
            ) from None
        self.address = Address(self.address.host, self._sockets[0].getsockname()[1])

    async def renew(self, tls: ssl.SSLContext | None, handshake_s: float = 10.0) -> None:
        """Accept with a new context; open connections keep theirs."""
        loop = asyncio.get_running_loop()
        before, copies = self._servers, self._copies
        self._servers, self._copies = [], []
        for sock in self._sockets:
            own = sock.dup()
            own.setblocking(False)
            try:
                server = await loop.create_server(
                    self._factory,
                    sock=own,
                    backlog=self._backlog,
                    ssl=tls,
                    ssl_handshake_timeout=handshake_s if tls is not None else None,
                )
            except OSError:
                own.close()
                self._servers += before  # keep serving with the old certificate
                raise
            self._servers.append(server)
            self._copies.append(own)
        self._tls = (tls, handshake_s)
        await _stop(before, copies)

    async def close_drained(self) -> None:
        """Close after accepting what the kernel has queued: closing a socket resets its queue, and
        a client cannot tell that another process still serves the address.
        """
        servers, self._servers = self._servers, []
        await _stop(servers, self._copies)
        for _ in range(_CLOSE_ROUNDS):  # the loop closes their copies later
            if all(copy.fileno() < 0 for copy in self._copies):
                break
            await asyncio.sleep(0)
        for sock in self._sockets if self._reuse_port else ():
            await self._accept_queued(sock)
        self.close()

    async def _accept_queued(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        tls, handshake_s = self._tls
        accepted: list[socket.socket] = []
        with suppress(OSError):  # BlockingIOError: the queue is empty
            while len(accepted) < self._backlog:
                accepted.append(sock.accept()[0])
        sock.close()
        for accepted_socket in accepted:
            accepted_socket.setblocking(False)
            with suppress(OSError):  # the client has left
                await loop.connect_accepted_socket(
                    self._factory,
                    accepted_socket,
                    ssl=tls,
                    ssl_handshake_timeout=handshake_s if tls is not None else None,
                )

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        self._servers = []
        self._sockets = []
