"""A client's plain socket, read and written without anything in between.

Values are received by the kernel into the room the store made for them, and sent by it from where
they lie: a transport would copy both, and keep what it cannot send. Nothing here blocks. What is
queued for a client are references: it costs a pinned value, not a copy, and as a client which does
not take its replies is neither read from nor served, it pins what it was last given and no more.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from cachetier.engine.net.session import ClientSession, Handler
from cachetier.engine.node import Node
from cachetier.engine.store import DiskValue, Hold

# Unsent bytes at which a client is left alone, and at which it is served again.
HIGH_WATER = 1024 * 1024
LOW_WATER = 256 * 1024
# Reads of one client before others have their turn.
_TURNS = 8
# Pieces for one call of the kernel: less than IOV_MAX, which is 1024.
_MAX_PIECES = 512
# Of a long value, so much is waited for before it is read on: each waking costs as much as copying
# some tens of kilobytes.
_WAIT_BYTES = 512 * 1024


class ClientSocket(Protocol):
    """A connection, to whoever owns them all."""

    def leave_if_idle(self) -> None: ...
    def leave_if_broken(self) -> None: ...


class _File:
    """The rest of a value on disk."""

    __slots__ = ("left", "place", "value")

    def __init__(self, value: DiskValue) -> None:
        self.value = value
        self.place = value.offset
        self.left = value.length

    def release(self) -> None:
        self.value.release()


# Bytes to send; a hold stands behind its bytes and is released when they are gone.
_Piece = bytes | memoryview | Hold | _File


class SocketClient:
    """Takes the socket over."""

    def __init__(
        self,
        sock: socket.socket,
        node: Node,
        clients: set[ClientSocket],
        handlers: dict[str, Handler],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._fd = sock.fileno()
        self._node = node
        self._clients = clients
        self._pieces: deque[_Piece] = deque()
        self._queued = 0
        self._is_reading = self._is_writing = False
        self._is_closed = False
        self._is_resting = False  # a reply waits for something else than the client
        self._low_water = 1  # of the socket's own: SO_RCVLOWAT
        self._waiting_op = ""
        self._session = ClientSession(node, self, handlers)
        introduce(self._session, sock.getpeername(), sock.getsockname(), self.abort)
        node.sessions[self._session.id] = self._session
        clients.add(self)
        self._settle()

    # -- session.Out ---------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._pieces.append(data)
        self._queued += len(data)

    def send(self, value: Hold | DiskValue) -> None:
        if self._is_closed:
            value.release()
            return
        if isinstance(value, Hold):
            self._pieces.extend(value.views)
            self._pieces.append(value)
        else:
            self._pieces.append(_File(value))
        self._queued += value.length

    def pending(self) -> int:
        return self._queued

    def is_behind(self) -> bool:
        if self._queued >= HIGH_WATER:
            self._flush()
        return self._queued >= HIGH_WATER or self._is_resting

    def pause(self) -> None:
        self._is_resting = True

    def resume(self) -> None:
        self._is_resting = False
        if not self._is_closed:
            self._session.feed()
            self._settle()

    # -- what the loop calls -------------------------------------------------------------------
    def _readable(self) -> None:
        session = self._session
        parser = session.parser
        for _ in range(_TURNS):
            buffers = parser.get_buffers()
            try:
                if len(buffers) == 1:
                    count = self._sock.recv_into(buffers[0])
                else:
                    count = self._sock.recvmsg_into(buffers)[0]
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.abort()
                return
            if not count:
                session.closing = True
                break
            parser.received(count)
            if not parser.missing:
                session.feed()
            if count < sum(map(len, buffers)) or session.closing or self.is_behind():
                break
        self._settle()

    def _writable(self) -> None:
        self._flush()
        if self._queued <= LOW_WATER and not self._is_resting:
            self._session.feed()
        self._settle()

    def _settle(self) -> None:
        """After anything happened: send, and wait for the right things next."""
        self._flush()
        if self._is_closed:
            return
        closing = self._session.closing
        if closing and not self._pieces:
            self.abort()
            return
        behind = self._queued >= HIGH_WATER
        self._count_waiting(self._session.last_op if behind else "")
        self._listen(reading=not (behind or closing or self._is_resting))
        missing = self._session.parser.missing
        self._expect(min(missing, _WAIT_BYTES) if missing >= _WAIT_BYTES // 8 else 1)

    def _listen(self, *, reading: bool) -> None:
        if reading != self._is_reading:
            self._is_reading = reading
            if reading:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.remove_reader(self._fd)
        writing = bool(self._pieces)
        if writing != self._is_writing:
            self._is_writing = writing
            if writing:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _expect(self, count: int) -> None:
        """Be woken for no less than so many bytes."""
        if count != self._low_water:
            self._low_water = count
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            except OSError:  # woken more often, then
                return

    # -- sending -------------------------------------------------------------------------------
    def _flush(self) -> None:
        pieces = self._pieces
        try:
            while pieces:
                front = pieces[0]
                if isinstance(front, Hold):
                    front.release()
                    pieces.popleft()
                elif isinstance(front, _File):
                    self._send_file(front)
                elif not self._send_pieces():
                    return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()

    def _send_pieces(self) -> bool:
        """Whether the kernel took all that was offered."""
        offered: list[bytes | memoryview] = []
        for piece in self._pieces:
            if isinstance(piece, bytes | memoryview):
                offered.append(piece)
            elif isinstance(piece, _File):
                break
            if len(offered) == _MAX_PIECES:
                break
        sent = self._sock.sendmsg(offered)
        self._queued -= sent
        while offered and sent >= len(offered[0]):
            sent -= len(offered.pop(0))
            self._drop_first()
        if offered and sent:
            self._pieces[0] = memoryview(offered[0])[sent:]
        return not offered

    def _drop_first(self) -> None:
        """A piece which is sent, and the hold behind it."""
        pieces = self._pieces
        pieces.popleft()
        while pieces and isinstance(first := pieces[0], Hold):
            pieces.popleft()
            first.release()

    def _send_file(self, file: _File) -> None:
        sent = os.sendfile(self._fd, file.value.fd, file.place, file.left)
        if not sent:
            raise OSError("the file is shorter than its value")
        file.place += sent
        file.left -= sent
        self._queued -= sent
        if not file.left:
            file.release()
            self._pieces.popleft()

    # -- leaving -------------------------------------------------------------------------------
    def leave_if_idle(self) -> None:
        """Close between two requests; replies under way are still sent."""
        if self._session.is_between_requests():
            self.abort()

    def leave_if_broken(self) -> None:
        """uvloop ends its watch over a socket with an error on it (a client that closed with
        replies unread resets it) and tells nobody: what such a client pins would never be freed."""
        if not self._is_closed and self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort()

    def abort(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._session.closing = True
        self._listen_no_more()
        self._count_waiting("")
        while self._pieces:
            piece = self._pieces.popleft()
            if isinstance(piece, Hold | _File):
                piece.release()
        self._queued = 0
        self._clients.discard(self)
        self._node.sessions.pop(self._session.id, None)
        self._session.close()
        self._sock.close()

    def _listen_no_more(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        self._is_reading = self._is_writing = False

    def _count_waiting(self, op: str) -> None:
        in_flight = self._node.counters.in_flight
        if self._waiting_op:
            in_flight[self._waiting_op] -= 1
        if op:
            in_flight[op] += 1
        self._waiting_op = op


def introduce(
    session: ClientSession, peer: object, local: object, hang_up: Callable[[], None]
) -> None:
    """Tell a session both ends of its connection, and how to cut it."""
    session.peer = _place(peer)
    session.local = _place(local)
    session.host = session.peer.rpartition(":")[0].strip("[]")
    session.hang_up = hang_up


def _place(place: object) -> str:
    """host:port as Redis writes it, which is with an IPv6 host in brackets."""
    if not isinstance(place, tuple):
        return ""
    host, port = place[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
