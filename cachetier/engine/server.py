"""Node server: RESP port and admin port on one event loop.

A client that does not read its replies is not read from, so it pins at most one value and one
buffer. A drain rejects new clients and waits for the others until the grace period ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from typing import cast

from cachetier.engine.commands import connection, leases, manual, scan, values
from cachetier.engine.commands import node as commands_node
from cachetier.engine.net.guards import find_timeout
from cachetier.engine.net.listener import Listener, TlsListener
from cachetier.engine.net.session import ClientSession
from cachetier.engine.net.sockets import (
    HIGH_WATER,
    LOW_WATER,
    ClientEntry,
    ClientSocket,
    SocketClient,
)
from cachetier.engine.net.tls import LiveContext
from cachetier.engine.node import Node
from cachetier.engine.store import DiskValue, Hold
from cachetier.wire import replies

log = logging.getLogger(__name__)

HANDLERS = {
    **connection.HANDLERS,
    **values.HANDLERS,
    **scan.HANDLERS,
    **commands_node.HANDLERS,
    **manual.HANDLERS,
    **leases.HANDLERS,
}
_SWEEP_S = 1.0
_POLL_S = 0.05
_CAPACITY_RECHECK_S = 0.02


class ClientProtocol(asyncio.BufferedProtocol):
    """Adapter between a transport and a ClientSession, for TLS, where bytes are copied anyway."""

    _transport: asyncio.Transport  # once connected

    def __init__(self, node: Node, clients: set[ClientSocket]) -> None:
        self._node = node
        self._entry = ClientEntry(node, clients, self)
        self._session: ClientSession | None = None
        self._paused = False
        self._resting = False  # a reply waits for the disk

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            _set_socket_options(sock)
        turned_away = _reject_client(self._node)
        if turned_away:
            self._transport.write(turned_away)
            self._transport.close()
            return
        self._session = ClientSession(self._node, self, HANDLERS)
        ends = (transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
        self._entry.register(self._session, *ends, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._session is not None:
            self._entry.unregister(self._session)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        if self._session is None:  # rejected: drop further input
            return memoryview(bytearray(4096))
        return self._session.parser.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._session is not None:
            self._session.parser.received(nbytes)
            self._serve(self._session)

    def pause_writing(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self._entry.count_waiting("")
        self._go_on()

    def leave_if_idle(self) -> None:
        if self._session is None or self._session.parser.is_idle:
            self._transport.close()

    def leave_if_broken(self) -> None:
        """Do nothing: the transport detects errors."""

    def _serve(self, session: ClientSession) -> None:
        session.feed()
        if session.closing:
            self._transport.close()
        elif self._paused:
            self._entry.count_waiting(session.last_op)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def send(self, value: Hold | DiskValue) -> None:
        """Send a copy: a transport buffers unsent bytes."""
        if isinstance(value, Hold):
            parts: list[bytes | memoryview] = list(value.views)
        else:
            parts = [os.pread(value.fd, value.length, value.offset)]
        self._transport.write(b"".join((*parts, b"\r\n")))
        value.release()

    def pending(self) -> int:
        return self._transport.get_write_buffer_size()

    def is_behind(self) -> bool:
        return self._paused or self._resting

    def pause(self) -> None:
        self._resting = True
        self._transport.pause_reading()

    def resume(self) -> None:
        self._resting = False
        self._go_on()

    def _go_on(self) -> None:
        if self._session is None or self._transport.is_closing():
            return
        self._serve(self._session)
        if not self.is_behind():
            self._transport.resume_reading()


def _reject_client(node: Node) -> bytes:
    """Count and return the error for a client that cannot be served; empty if it can."""
    if node.draining:
        node.counters.closed["draining"] += 1
        return replies.error("ERR draining")
    if len(node.sessions) >= node.config.max_clients:
        node.counters.closed["max_clients"] += 1
        return replies.error("ERR max number of clients reached")
    return b""


def _set_socket_options(sock: socket.socket) -> None:
    """Set TCP_NODELAY, and keepalive to detect vanished clients after ten minutes."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 300)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5)


class NodeServer:
    """Server; after start, `port` is the actual port if 0 was requested."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clients: set[ClientSocket] = set()
        self._door: Listener | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        assert self._door is not None
        return self._door.port

    async def start(self) -> None:
        listen = self._node.config.listen
        loop = asyncio.get_running_loop()
        tls = self._node.config.guards.tls
        if tls is not None:
            counters = self._node.counters
            live = LiveContext(tls, counters.handshake_failed)
            self._node.tls_contexts.append(live)
            self._door = TlsListener(live, self._client, counters.turned_away)
        else:
            self._door = Listener(self._take)
        await self._door.open(listen)
        self._sweeper = loop.create_task(self._sweep())

    def _client(self) -> ClientProtocol:
        return ClientProtocol(self._node, self._clients)

    def _take(self, sock: socket.socket) -> None:
        if len(self._node.sessions) < self._node.config.max_clients:
            self._serve(sock)
        else:  # detect clients that disconnected in the meantime first
            asyncio.get_running_loop().call_later(_CAPACITY_RECHECK_S, self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        turned_away = _reject_client(self._node)
        try:
            if not turned_away:
                _set_socket_options(sock)
                SocketClient(sock, self._node, self._clients, HANDLERS)
                return
            sock.send(turned_away)
        except OSError as exc:  # disconnected before it was served
            log.debug("Client disconnected immediately: %s", exc)
        except MemoryError:
            self._node.shortage.failed()
        sock.close()

    async def drain(self, grace_s: float) -> None:
        """Reject new clients and close the others after their request, within `grace_s`."""
        self._node.draining = True
        if self._door is not None:
            self._door.close()
        end = time.monotonic() + grace_s
        while self._clients and time.monotonic() < end:
            for client in list(self._clients):
                client.leave_if_idle()
            await asyncio.sleep(_POLL_S)
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _close_overdue(self) -> None:
        now, node = time.monotonic(), self._node
        for session in list(node.sessions.values()):
            reason = find_timeout(session, node.config.guards, now)
            if reason:
                node.counters.closed[reason] += 1
                log.info("Closing %s: %s", session.peer, reason)
                session.hang_up()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                self._sweep_once()
            except MemoryError:
                self._node.shortage.failed()

    def _sweep_once(self) -> None:
        for client in list(self._clients):
            client.leave_if_broken()
        self._close_overdue()
        for context in self._node.tls_contexts:
            context.renew()
        if self._node.password_file.renew():
            self._node.gate.renew(self._node.password_file.lines)
        self._node.tick(time.monotonic())
